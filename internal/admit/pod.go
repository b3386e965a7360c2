package admit

// This file is for extensions about pods: the pod that a request carries, and the patch that makes another one of it.

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"reflect"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

var podType = reflect.TypeFor[*corev1.Pod]()

func newPod() runtime.Object { return &corev1.Pod{} }

// Pods are the pods of the extensions that are running. An extension says in the form of a patch what it made of its pod;
// because the patch was made here, it need not be applied to learn what that was. The zero value is ready for use, and
// serves requests that no extension is running on, too.
type Pods struct {
	mu   sync.Mutex
	runs map[*byte]*podRun // by the first byte of the object in the request that the extension has: a copy of its own
}

// seed is that of the hashes by which a text is known again.
var seed = maphash.MakeSeed()

// podRun is one run of an extension about a pod. nil is one about something else.
type podRun struct {
	pods *Pods
	key  *byte
	raw  []byte // perhaps the very one that the extension has
	sum  uint64 // of raw
	last bool   // no step comes after this one

	mu    sync.Mutex
	over  bool
	pod   *corev1.Pod // what raw decodes to; the extension gets copies
	made  patch.Patch // the last one
	after *corev1.Pod // a copy of the pod that it was made for, unless last
}

// begin notes that a step runs on a request, if that carries a pod.
func (p *Pods) begin(k *call, i int, req *admission.Request) *podRun {
	if p == nil || !carriesPod(req) {
		return nil
	}
	pod, err := k.object.view(podType, newPod)
	if err != nil {
		return nil // Pod says so
	}
	run := &podRun{
		pods: p, key: &req.Object.Raw[0], raw: k.object.raw, sum: maphash.Bytes(seed, k.object.raw), pod: pod.(*corev1.Pod),
		last: i == len(k.Steps)-1 && !k.Reinvoke,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs == nil {
		p.runs = map[*byte]*podRun{}
	}
	p.runs[run.key] = run
	return run
}

// isOverwritten reports whether the extension has written into the text that it was lent.
func (r *podRun) isOverwritten() bool { return r != nil && r.sum != maphash.Bytes(seed, r.raw) }

// end waits for a patch that is being made. A step that was left behind may ask for more: it gets them as if it were not
// running, and nothing of the call is touched.
func (r *podRun) end() {
	if r == nil {
		return
	}
	r.pods.mu.Lock()
	delete(r.pods.runs, r.key)
	r.pods.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// find returns the run that a request belongs to, locked; nil for none. An object that the extension has overwritten is
// another one.
func (p *Pods) find(req *admission.Request) *podRun {
	if len(req.Object.Raw) == 0 {
		return nil
	}
	p.mu.Lock()
	run := p.runs[&req.Object.Raw[0]]
	p.mu.Unlock()
	if run == nil || !carriesPod(req) {
		return nil
	}
	run.mu.Lock()
	if run.over || run.sum != maphash.Bytes(seed, req.Object.Raw) {
		run.mu.Unlock()
		return nil
	}
	return run
}

// isAnswered reports whether a response is the one that the patch was made for. Whatever else the extension has done to
// its pod since counts as little as it would after PatchResponseFromRaw.
func (r *podRun) isAnswered(resp admission.Response) (made patch.Patch, pod runtime.Object, ok bool) {
	if r == nil {
		return patch.Patch{}, nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made.Len() == 0 || len(resp.Patch) > 0 || resp.PatchType == nil || *resp.PatchType != admissionv1.PatchTypeJSONPatch || !r.made.Is(resp.Patches) {
		return patch.Patch{}, nil, false
	}
	if r.after == nil {
		return r.made, nil, true
	}
	return r.made, r.after, true
}

// Pod returns a pod of the caller's own: the one that a request carries, or nil when it carries none. A DELETE has
// only an old object, and an extension may be registered for other kinds than pods.
func (p *Pods) Pod(req admission.Request) (*corev1.Pod, error) {
	if run := p.find(&req); run != nil {
		defer run.mu.Unlock()
		return copiedPod(run.pod), nil
	}
	if !carriesPod(&req) {
		return nil, nil
	}
	pod := &corev1.Pod{}
	if err := decode.Into(req.Object.Raw, pod); err != nil {
		return nil, fmt.Errorf("the request's object is not a pod: %w", err)
	}
	return pod, nil
}

func copiedPod(pod *corev1.Pod) *corev1.Pod {
	if c, ok := copied(pod); ok {
		if its, ok := c.(*corev1.Pod); ok {
			return its
		}
	}
	return pod.DeepCopy()
}

func carriesPod(req *admission.Request) bool {
	return !absent(req.Object.Raw) && (req.Kind.Kind == "" || req.Kind.Group == "" && req.Kind.Kind == "Pod")
}

// Patch answers a request with the difference between the pod it carries and pod, which is not kept.
func (p *Pods) Patch(req admission.Request, pod *corev1.Pod) admission.Response {
	if pod == nil {
		return unpatched("the pod is nil; check for that first, a request may carry none")
	}
	if run := p.find(&req); run != nil {
		defer run.mu.Unlock()
		made, err := patch.Compare(run.raw, run.pod, pod)
		if err != nil {
			return unpatched("%w", err)
		}
		if run.made, run.after = made, nil; !run.last {
			run.after = copiedPod(pod)
		}
		return patchedBy(made)
	}
	before, err := p.Pod(req)
	if err != nil {
		return unpatched("%w", err)
	}
	if before == nil {
		return unpatched("the request carries no pod to compare with (%s of %s)", req.Operation, req.Kind.Kind)
	}
	made, err := patch.Compare(req.Object.Raw, before, pod)
	if err != nil {
		return unpatched("%w", err)
	}
	return patchedBy(made)
}

func unpatched(format string, args ...any) admission.Response {
	return admission.Errored(http.StatusInternalServerError, fmt.Errorf("eirinix: PatchFromPod: "+format, args...))
}

func patchedBy(made patch.Patch) admission.Response {
	resp := admission.Allowed("")
	if made.Len() > 0 {
		jsonPatch := admissionv1.PatchTypeJSONPatch
		resp.Patches, resp.PatchType = made.Operations(), &jsonPatch
	}
	return resp
}
