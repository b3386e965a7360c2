// Package v1 holds the custom resource of the example playbook.
//
// +kubebuilder:object:generate=true
// +groupName=ops.netease.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=. output:crd:dir=../../config

// GroupVersion is the group and version of Playbooks in the API.
var GroupVersion = schema.GroupVersion{Group: "ops.netease.com", Version: "v1"}

// AddToScheme adds the types to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Playbook{}, &PlaybookList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Playbook is a procedure that an operator carries out step by step, reporting its progress.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Abstract,type=string,JSONPath=`.spec.abstract`
// +kubebuilder:printcolumn:name=Progress,type=integer,JSONPath=`.status.progress`
type Playbook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PlaybookSpec   `json:"spec,omitempty"`
	Status PlaybookStatus `json:"status,omitempty"`
}

// PlaybookSpec describes the procedure.
type PlaybookSpec struct {
	// Abstract summarizes the procedure in one sentence. The webhook sets it if it is empty.
	// +optional
	Abstract string `json:"abstract,omitempty"`
}

// PlaybookStatus holds the progress of the procedure.
type PlaybookStatus struct {
	// Progress is a percentage. At 100 the controller deletes the Playbook.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Progress int32 `json:"progress,omitempty"`
}

// PlaybookList is a list of Playbooks.
//
// +kubebuilder:object:root=true
type PlaybookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Playbook `json:"items"`
}
