package modes

// This file draws the number by which an object is in a percentage. All requests that carry an object draw the same one.

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// draw returns the number in [0, 100) of an object for a step. It is the same in every process.
func draw(step, object string) float64 {
	sum := sha256.Sum256([]byte(step + "\x00" + object))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53) * everyone
}

// drawnBy returns the name by which the object of a request draws, with its namespace: that of its controller, else its
// generateName, which is all that it has while it is created, else its own. ReplicaSets lose the hash from theirs.
//
// The old object counts first, because the user has not written it. Where there is none, a subresource carries something
// else than the object, such as options or an Eviction.
func drawnBy(req *admissionv1.AdmissionRequest) string {
	objects := [][]byte{req.OldObject.Raw, req.Object.Raw}
	if req.SubResource != "" {
		objects = objects[:1]
	}
	object, owner, namespace := metadataOf(objects...), "", req.Namespace
	if o := metav1.GetControllerOfNoCopy(&object); o != nil {
		owner = o.Name
		if hash := object.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; o.Kind == "ReplicaSet" && hash != "" {
			owner = strings.TrimSuffix(owner, "-"+hash)
		}
	}
	if req.Resource.Group == "" && req.Resource.Resource == "namespaces" {
		namespace = "" // it is the object's own name, if that is known
	}
	return namespace + "/" + cmp.Or(owner, object.GenerateName, object.Name, req.Name)
}

// metadataOf decodes the metadata of the first object that has some, and nothing behind them.
func metadataOf(objects ...[]byte) metav1.ObjectMeta {
	for _, object := range objects {
		var metadata metav1.ObjectMeta
		c := jsontext.Reader{Text: object}
		if c.Member("metadata") && decode.Into(c.Value(), &metadata) == nil {
			return metadata
		}
	}
	return metav1.ObjectMeta{}
}
