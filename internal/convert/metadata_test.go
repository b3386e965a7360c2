package convert

// This file specifies when metadata is as it arrived.

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
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
