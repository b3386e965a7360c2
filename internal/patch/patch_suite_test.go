package patch_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

func TestPatch(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Lossless patch")
}

// decode reads JSON as the API server and the webhook do: case-sensitive, unknown members ignored.
func decode[T any](raw []byte) (T, error) {
	var v T
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &v)
	return v, err
}

// apply applies our answer as the API server does.
func apply(raw, wire []byte) ([]byte, error) {
	p, err := evanphx.DecodePatch(wire)
	if err != nil {
		return nil, err
	}
	return p.Apply(raw)
}

// wire renders operations, both ways at once.
func wire(ops []jsonpatch.Operation) string {
	GinkgoHelper()
	fast := string(patch.AppendJSON(nil, ops))
	slow, err := json.Marshal(ops)
	Expect(err).NotTo(HaveOccurred())
	if ops == nil {
		slow = []byte("[]")
	}
	Expect(fast).To(Equal(string(slow)), "AppendJSON and json.Marshal must agree")
	return fast
}

// change decodes raw, edits a deep copy, and returns the patch and its result in the API server. It checks the invariant of
// every patch: it applies, and the result decodes to the edited copy.
func change[T any, P interface {
	*T
	DeepCopy() *T
}](raw string, edit func(*T),
) (ops, applied string) {
	GinkgoHelper()
	v, err := decode[T]([]byte(raw))
	Expect(err).NotTo(HaveOccurred())
	before := P(&v)
	after := before.DeepCopy()
	edit(after)
	got, err := patch.Diff([]byte(raw), before, after)
	Expect(err).NotTo(HaveOccurred())
	ops = wire(got)
	result, err := apply([]byte(raw), []byte(ops))
	Expect(err).NotTo(HaveOccurred(), "patch %s", ops)
	have, err := decode[T](result)
	Expect(err).NotTo(HaveOccurred())
	want := roundTrip(after)
	Expect(equality.Semantic.DeepEqual(have, want)).To(BeTrue(), "patch %s\ngives %s", ops, result)
	if len(got) == 0 {
		Expect(got).To(BeNil(), "no change must give no operations at all")
	}
	return ops, string(result)
}

func roundTrip[T any](v *T) T {
	GinkgoHelper()
	text, err := json.Marshal(v)
	Expect(err).NotTo(HaveOccurred())
	back, err := decode[T](text)
	Expect(err).NotTo(HaveOccurred())
	return back
}

func changePod(raw string, edit func(*corev1.Pod)) (ops, applied string) {
	GinkgoHelper()
	return change[corev1.Pod](raw, edit)
}

var _ runtime.Object = &corev1.Pod{}
