package eirinixtest_test

import (
	"regexp"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// outcome is the result of a request for its user.
type outcome struct {
	Code     int32                 `json:"code,omitempty"`
	Reason   metav1.StatusReason   `json:"reason,omitempty"`
	Message  string                `json:"message,omitempty"`
	Details  *metav1.StatusDetails `json:"details,omitempty"`
	Warnings []string              `json:"warnings,omitempty"`
	Object   map[string]any        `json:"object,omitempty"`
}

func (o *outcome) err(err error) {
	if err == nil {
		return
	}
	GinkgoHelper()
	status, ok := err.(apierrors.APIStatus)
	Expect(ok).To(BeTrue(), "%v", err)
	s := status.Status()
	o.Code, o.Reason, o.Message, o.Details = s.Code, s.Reason, withoutValues(s.Message), s.Details
	if o.Details != nil {
		for i := range o.Details.Causes {
			o.Details.Causes[i].Message = withoutValues(o.Details.Causes[i].Message)
		}
	}
}

// withoutValues leaves out the parts of a message that differ between two runs, or between the API server's own types and
// public ones.
func withoutValues(message string) string {
	message = stepSays.ReplaceAllString(message, "")
	message = podDifference.ReplaceAllString(message, "")
	return invalidValue.ReplaceAllString(message, "Invalid value: {...}: ")
}

// stepSays receives a late step's answer or not, because the step returns just when its time is over.
var stepSays = regexp.MustCompile(` \(the step says: [^)]*\)`)

// podDifference ends a message, after the list of the fields of a Pod that may change; invalidValue is a printed struct or list.
var (
	podDifference = regexp.MustCompile(`(?s) \(allow it to be set to 1 if it was previously negative\).*`)
	invalidValue  = regexp.MustCompile(`Invalid value: [\[{].*?[\]}]: `)
)

func (o *outcome) yaml() string {
	text, err := yaml.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// essence returns an object without the fields that are unique to each object.
func essence(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	for _, f := range []string{"uid", "creationTimestamp", "resourceVersion", "managedFields", "generation", "namespace"} {
		unstructured.RemoveNestedField(u.Object, "metadata", f)
	}
	if u.GetGenerateName() != "" {
		unstructured.RemoveNestedField(u.Object, "metadata", "name")
	}
	delete(u.Object, "status")
	return u.Object
}

// warningLog collects the API server's warnings.
type warningLog struct {
	mu   sync.Mutex
	said []string
}

func (l *warningLog) HandleWarningHeader(_ int, _, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, text)
}

func (l *warningLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.said)
}
