package v1

// This file declares the kind Captain.

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CaptainSpec describes a captain.
type CaptainSpec struct {
	// Rank grows with the years. It never falls.
	// +kubebuilder:validation:Minimum=1
	Rank int32 `json:"rank"`

	// Ship is the ship that the captain commands now. It is empty ashore.
	// +optional
	Ship string `json:"ship,omitempty"`
}

// Captain is an officer who can command a ship.
//
// +kubebuilder:object:root=true
type Captain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CaptainSpec `json:"spec"`
}

// CaptainList is a list of Captains.
//
// +kubebuilder:object:root=true
type CaptainList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Captain `json:"items"`
}

func init() {
	SchemeBuilder.Register(func(s *runtime.Scheme) error {
		s.AddKnownTypes(GroupVersion, &Captain{}, &CaptainList{})
		return nil
	})
}
