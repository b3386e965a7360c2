package convert

// This file specifies when metadata is as it arrived.

import (
	"reflect"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
)

// TestMetadataIsComparedInEachField also fails for a field that a later metav1.ObjectMeta has and isAsBefore does not.
func TestMetadataIsComparedInEachField(t *testing.T) {
	g, fill := NewWithT(t), randfill.NewWithSeed(1).NilChance(0).NumElements(1, 2)
	full := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
	m := metadata{before: &full}
	g.Expect(m.isAsBefore(full.DeepCopy())).To(BeTrue())
	few := &metav1.ObjectMeta{Name: "a"}
	g.Expect((&metadata{before: few}).isAsBefore(few.DeepCopy())).To(BeTrue())
	manager := full.DeepCopy()
	manager.ManagedFields[0].Manager = "another"
	g.Expect(m.isAsBefore(manager)).To(BeFalse())
	for i := range reflect.TypeFor[metav1.ObjectMeta]().NumField() {
		changed := full.DeepCopy()
		field := reflect.ValueOf(changed).Elem().Field(i)
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
		} else {
			fill.Fill(field.Addr().Interface())
		}
		g.Expect(m.isAsBefore(changed)).To(BeFalse(), reflect.TypeFor[metav1.ObjectMeta]().Field(i).Name)
	}
}
