// Package v1beta1 holds the older version of the custom resource of the example multiversion.
//
// +kubebuilder:object:generate=true
// +groupName=batch.example.com
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CronJob runs an image at the times of its schedule.
//
// +kubebuilder:object:root=true
type CronJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CronJobSpec `json:"spec,omitempty"`
}

// CronJobSpec holds the image and its schedule.
type CronJobSpec struct {
	// Schedule is a line of cron: minute, hour, day of the month, month, day of the week.
	// +kubebuilder:validation:Pattern=`^(\*|(\*/)?[0-9][0-9,/-]*)( (\*|(\*/)?[0-9][0-9,/-]*)){4}$`
	Schedule string `json:"schedule"`
	Image    string `json:"image"`
}

// CronJobList is a list of CronJobs.
//
// +kubebuilder:object:root=true
type CronJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CronJob `json:"items"`
}
