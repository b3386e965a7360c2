package v1

// This file declares the kind Destroyer.

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DestroyerSpec describes a destroyer.
type DestroyerSpec struct {
	// Class is the name of the first ship that was built to the same plans. By default it is the ship's own name.
	// +optional
	Class string `json:"class,omitempty"`

	// Crew is the number of people on board, 300 by default.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Crew *int32 `json:"crew,omitempty"`
}

// Destroyer is a fast ship. It belongs to no namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type Destroyer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DestroyerSpec `json:"spec,omitempty"`
}

// DestroyerList is a list of Destroyers.
//
// +kubebuilder:object:root=true
type DestroyerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Destroyer `json:"items"`
}

func init() {
	SchemeBuilder.Register(func(s *runtime.Scheme) error {
		s.AddKnownTypes(GroupVersion, &Destroyer{}, &DestroyerList{})
		return nil
	})
}
