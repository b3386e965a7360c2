package convert

// This file specifies what is known of metadata, and of the members of a type.

import (
	"reflect"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// TestMetadataIsComparedInEachField also fails for a field that a later metav1.ObjectMeta has and isAsBefore does not.
func TestMetadataIsComparedInEachField(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0).NumElements(1, 2)
	full := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
	m := metadata{before: &full}
	if same := full.DeepCopy(); !m.isAsBefore(same) {
		t.Error("a copy is not the same")
	}
	if few := (&metav1.ObjectMeta{Name: "a"}); !(&metadata{before: few}).isAsBefore(few.DeepCopy()) {
		t.Error("a copy of few members is not the same")
	}
	manager := full.DeepCopy()
	if manager.ManagedFields[0].Manager = "another"; m.isAsBefore(manager) {
		t.Error("a change in a manager is not seen")
	}
	for i := range reflect.TypeFor[metav1.ObjectMeta]().NumField() {
		changed := full.DeepCopy()
		field := reflect.ValueOf(changed).Elem().Field(i)
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
		} else {
			fill.Fill(field.Addr().Interface())
		}
		if m.isAsBefore(changed) {
			t.Errorf("a change of %s is not seen", reflect.TypeFor[metav1.ObjectMeta]().Field(i).Name)
		}
	}
}

var _ = Describe("A type", func() {
	It("knows everything as a tree", func() {
		_, known := knownMember(nil, "x")
		Expect(known).To(BeTrue())
		Expect(knownItem(nil)).To(BeNil())
	})

	It("leads from members to items", func() {
		spec, known := knownMember(jsontype.Of(reflect.TypeFor[*corev1.Pod]()), "spec")
		Expect(known).To(BeTrue())
		containers, _ := knownMember(spec, "containers")
		_, known = knownMember(knownItem(containers), "image")
		Expect(known).To(BeTrue())
		_, known = knownMember(knownItem(containers), "picture")
		Expect(known).To(BeFalse())
	})
})
