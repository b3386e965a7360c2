// Package v1 holds the newer version of the custom resource of the example multiversion. It is the hub: the version
// that is stored, and that every other version converts to and from.
//
// +kubebuilder:object:generate=true
// +groupName=batch.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=../... output:crd:dir=../../config

// CronJob runs an image at the times of its schedule.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
type CronJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CronJobSpec `json:"spec,omitempty"`
}

// CronJobSpec holds the image and its schedule.
type CronJobSpec struct {
	Schedule CronSchedule `json:"schedule"`
	Image    string       `json:"image"`

	// TimeZone is the name of a time zone. Version v1beta1 has no such field.
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// CronSchedule holds the fields of a schedule, in the syntax of cron. An empty field means "*".
type CronSchedule struct {
	// +optional
	// +kubebuilder:validation:Pattern=`^((\*/)?[0-9][0-9,/-]*)?$`
	Minute string `json:"minute,omitempty"`
	// +optional
	// +kubebuilder:validation:Pattern=`^((\*/)?[0-9][0-9,/-]*)?$`
	Hour string `json:"hour,omitempty"`
	// +optional
	// +kubebuilder:validation:Pattern=`^((\*/)?[0-9][0-9,/-]*)?$`
	DayOfMonth string `json:"dayOfMonth,omitempty"`
	// +optional
	// +kubebuilder:validation:Pattern=`^((\*/)?[0-9][0-9,/-]*)?$`
	Month string `json:"month,omitempty"`
	// +optional
	// +kubebuilder:validation:Pattern=`^((\*/)?[0-9][0-9,/-]*)?$`
	DayOfWeek string `json:"dayOfWeek,omitempty"`
}

// CronJobList is a list of CronJobs.
//
// +kubebuilder:object:root=true
type CronJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CronJob `json:"items"`
}
