package recording_test

import (
	"context"
	"log"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/recording"
)

// A running program records its calls for ten minutes.
func ExampleStart() {
	var x *eirinix.ExtensionManager // of a program that runs
	stop, err := recording.Start(x, recording.Options{
		Dir:  "/recordings/calls", // in an emptyDir, in a cluster
		Only: func(r *admissionv1.AdmissionRequest) bool { return r.Namespace == "cf-workloads" },
		Redact: func(object map[string]any) { // beside Secrets, whose data never are written
			unstructured.RemoveNestedField(object, "metadata", "annotations")
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	time.AfterFunc(10*time.Minute, func() { _ = stop(context.Background()) })
}
