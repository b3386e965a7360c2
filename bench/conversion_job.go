package main

// This file holds the kind that section conversion converts, and the review of a list of its objects.

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const jobKind = "NightlyJob"

var (
	spokeVersion = schema.GroupVersion{Group: "bench.example.org", Version: "v1alpha1"}
	hubVersion   = schema.GroupVersion{Group: "bench.example.org", Version: "v1"}
)

// spokeJob has its schedule in one string.
type spokeJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              spokeSpec `json:"spec,omitempty"`
}

type spokeSpec struct {
	Schedule string         `json:"schedule"`
	Limit    int64          `json:"limit,omitempty"`
	Template corev1.PodSpec `json:"template"`
}

// hubJob has its schedule in two fields.
type hubJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              hubSpec `json:"spec,omitempty"`
}

type hubSpec struct {
	Minute   string         `json:"minute"`
	Hour     string         `json:"hour"`
	Limit    int64          `json:"limit,omitempty"`
	Template corev1.PodSpec `json:"template"`
}

func (*hubJob) Hub() {}

func (j *hubJob) DeepCopyObject() runtime.Object {
	c := *j
	c.ObjectMeta, c.Spec.Template = *j.ObjectMeta.DeepCopy(), *j.Spec.Template.DeepCopy()
	return &c
}

func (j *spokeJob) DeepCopyObject() runtime.Object {
	c := *j
	c.ObjectMeta, c.Spec.Template = *j.ObjectMeta.DeepCopy(), *j.Spec.Template.DeepCopy()
	return &c
}

// ConvertTo implements conversion.Convertible.
func (j *spokeJob) ConvertTo(to conversion.Hub) error {
	hub, ok := to.(*hubJob)
	if !ok {
		return fmt.Errorf("got a %T", to)
	}
	hub.ObjectMeta, hub.Spec.Limit, hub.Spec.Template = j.ObjectMeta, j.Spec.Limit, j.Spec.Template
	hub.Spec.Minute, hub.Spec.Hour, _ = strings.Cut(j.Spec.Schedule, " ")
	return nil
}

// ConvertFrom implements conversion.Convertible.
func (j *spokeJob) ConvertFrom(from conversion.Hub) error {
	hub, ok := from.(*hubJob)
	if !ok {
		return fmt.Errorf("got a %T", from)
	}
	j.ObjectMeta, j.Spec.Limit, j.Spec.Template = hub.ObjectMeta, hub.Spec.Limit, hub.Spec.Template
	j.Spec.Schedule = hub.Spec.Minute + " " + hub.Spec.Hour
	return nil
}

// jobSizes are numbers of containers, for objects of about 2 and 22 KB.
var jobSizes = []int{1, 28}

// newJob returns an object of about 2 KB, of which a fourth is managedFields, or a larger one with more containers.
func newJob(containers int) *spokeJob {
	j := &spokeJob{TypeMeta: metav1.TypeMeta{APIVersion: spokeVersion.String(), Kind: jobKind}}
	j.ObjectMeta = metav1.ObjectMeta{
		Name: "job", Namespace: "bench", UID: "6f1c1bb5-0000-4000-8000-0123456789ab", ResourceVersion: "123456", Generation: 2,
		CreationTimestamp: metav1.Unix(1700000000, 0),
		Labels:            map[string]string{"app.kubernetes.io/name": "nightly", "app.kubernetes.io/part-of": "bench"},
		Annotations:       map[string]string{"bench.example.org/owner": "team"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubectl-client-side-apply", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: spokeVersion.String(), FieldsType: "FieldsV1",
			Time: &metav1.Time{Time: metav1.Unix(1700000000, 0).Time},
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:bench.example.org/owner":{}},"f:labels":{".":{},"f:app.kubernetes.io/name":{},` +
				`"f:app.kubernetes.io/part-of":{}}},"f:spec":{".":{},"f:limit":{},"f:schedule":{},"f:template":{".":{},"f:containers":{},"f:restartPolicy":{},"f:volumes":{}}}}`),
		}},
	}
	c := corev1.Container{Name: "main", Image: "registry.example.org/images/app:1.2.3", Args: []string{"--verbose", "--retries=3"}}
	for e := range 10 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("ENVIRONMENT_%d", e), Value: "a value of common length"})
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	j.Spec = spokeSpec{Schedule: "5 4", Limit: 10, Template: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyOnFailure,
		Containers:    slices.Repeat([]corev1.Container{c}, containers),
		Volumes:       []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	return j
}

// conversionOf returns the request for an object in the hub's version, as an API server writes it: sorted.
func conversionOf(j *spokeJob) (*review, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(j)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	rev := apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "ConversionReview"},
		Request: &apiextensionsv1.ConversionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", DesiredAPIVersion: hubVersion.String(), Objects: []runtime.RawExtension{{Raw: text}},
		},
	}
	body, err := json.Marshal(rev)
	return &review{name: "job", uid: string(rev.Request.UID), body: body}, err
}

// checkConversion returns an error unless an answer holds a job, converted as its type does.
func checkConversion(answer []byte, uid string, job *spokeJob) error {
	var rev apiextensionsv1.ConversionReview
	if err := json.Unmarshal(answer, &rev); err != nil {
		return err
	}
	switch {
	case rev.Response == nil:
		return errors.New("the answer has no response")
	case string(rev.Response.UID) != uid:
		return fmt.Errorf("the answer is to %q", rev.Response.UID)
	case rev.Response.Result.Status != metav1.StatusSuccess:
		return fmt.Errorf("the answer is %s", rev.Response.Result.Message)
	case len(rev.Response.ConvertedObjects) != 1:
		return fmt.Errorf("the answer has %d objects", len(rev.Response.ConvertedObjects))
	}
	want, got := &hubJob{}, &hubJob{}
	if err := job.ConvertTo(want); err != nil {
		return err
	}
	want.TypeMeta = metav1.TypeMeta{APIVersion: hubVersion.String(), Kind: jobKind}
	if err := json.Unmarshal(rev.Response.ConvertedObjects[0].Raw, got); err != nil {
		return err
	}
	if a, b := asText(want), asText(got); a != b {
		return fmt.Errorf("the object is %s instead of %s", b, a)
	}
	return nil
}

// asText writes a job, so that times are compared as instants.
func asText(j *hubJob) string {
	text, err := json.Marshal(j)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
