package v1

// This file declares the kind CronJob.

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConcurrencyPolicy decides about a run that is due while the one before it goes on.
// +kubebuilder:validation:Enum=Allow;Forbid;Replace
type ConcurrencyPolicy string

const (
	AllowConcurrent   ConcurrencyPolicy = "Allow"   // both go on
	ForbidConcurrent  ConcurrencyPolicy = "Forbid"  // the new run is left out
	ReplaceConcurrent ConcurrencyPolicy = "Replace" // the old run ends
)

// CronJobSpec describes the runs of a CronJob.
type CronJobSpec struct {
	// Schedule says when to run, in the five fields of cron.
	// +kubebuilder:validation:MinLength=1
	Schedule string `json:"schedule"`

	// Image is the container image of a run.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`

	// ConcurrencyPolicy is Allow by default.
	// +optional
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`

	// Suspend stops further runs. It is false by default.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// SuccessfulRunsHistoryLimit is the number of finished runs that are kept, 3 by default.
	// +kubebuilder:validation:Minimum=0
	// +optional
	SuccessfulRunsHistoryLimit *int32 `json:"successfulRunsHistoryLimit,omitempty"`
}

// CronJobStatus holds the history of a CronJob.
type CronJobStatus struct {
	// LastScheduleTime is the time of the last run.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
}

// CronJob runs an image on a schedule.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type CronJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CronJobSpec   `json:"spec"`
	Status CronJobStatus `json:"status,omitempty"`
}

// CronJobList is a list of CronJobs.
//
// +kubebuilder:object:root=true
type CronJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CronJob `json:"items"`
}

func init() {
	SchemeBuilder.Register(func(s *runtime.Scheme) error {
		s.AddKnownTypes(GroupVersion, &CronJob{}, &CronJobList{})
		return nil
	})
}
