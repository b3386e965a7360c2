package v1

// This file declares the kind Frigate.

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FrigateSpec describes a frigate.
type FrigateSpec struct {
	// Shipyard is the place where the ship was built. It cannot change.
	// +kubebuilder:validation:MinLength=1
	Shipyard string `json:"shipyard"`

	// Masts is the number of masts.
	// +kubebuilder:validation:Minimum=0
	Masts int32 `json:"masts"`

	// Sails is the number of sails. A mast carries at most five.
	// +kubebuilder:validation:Minimum=0
	Sails int32 `json:"sails"`
}

// Frigate is a ship with sails.
//
// +kubebuilder:object:root=true
type Frigate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FrigateSpec `json:"spec"`
}

// FrigateList is a list of Frigates.
//
// +kubebuilder:object:root=true
type FrigateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Frigate `json:"items"`
}

func init() {
	SchemeBuilder.Register(func(s *runtime.Scheme) error {
		s.AddKnownTypes(GroupVersion, &Frigate{}, &FrigateList{})
		return nil
	})
}
