package chain

// This file runs steps that make their own patch, and interprets their Responses. For extensions that handle pods, it
// returns the pod that a request carries, and makes the patch to a changed pod.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// handle runs a step that makes its own patch on a copy of the request, and applies its Response to the object.
func (r *run) handle(i int, call *Call) error {
	s := r.steps[i]
	raw, err := r.object.json()
	if err != nil {
		return err
	}
	req := admission.Request{AdmissionRequest: r.requestWith(raw)}
	onPod, err := s.Pods.begin(r, i, &req)
	if err != nil {
		return r.misread(i, newPod, err)
	}
	defer onPod.end()
	var resp admission.Response
	err = r.attempt(i, task{run: func(ctx context.Context, _ *Call, _, _ runtime.Object) error {
		resp = s.Handle(ctx, req)
		return failure(resp)
	}})
	if err != nil {
		return err
	}
	if !resp.Allowed && reflect.DeepEqual(resp, admission.Response{}) { // admitted, as the example in EiriniX's README intends
		s.warned.Do(func() {
			r.blaming(r.log, s.Name).Info(
				"extension returned the zero Response, so the object is admitted unchanged; return admission.Allowed instead")
		})
		return nil
	}
	for _, w := range resp.Warnings {
		call.Warn(w)
	}
	for key, value := range resp.AuditAnnotations {
		call.Annotate(key, value)
	}
	if !resp.Allowed {
		if resp.Result == nil {
			resp.Result = &metav1.Status{}
		}
		return &denial{status: fitStatus(s.Name, *resp.Result)}
	}
	if made, pod, ok := onPod.isAnswered(resp); ok {
		r.object.adopt(made, pod)
		return nil
	}
	return r.applyPatch(onPod, resp)
}

// failure returns the error that a raw Response reports, as from admission.Errored: one that is not allowed, with a code
// of 500 or more.
func failure(resp admission.Response) error {
	if resp.Allowed || resp.Result == nil || resp.Result.Code < codeInternalError {
		return nil
	}
	if resp.Result.Message == "" {
		return fmt.Errorf("it returned code %d without a message", resp.Result.Code)
	}
	return errors.New(resp.Result.Message)
}

// requestWith copies the request, with the object as the steps before have left it.
func (r *run) requestWith(raw []byte) admissionv1.AdmissionRequest {
	req := *r.request
	if req.Object.Raw = raw; absent(raw) {
		req.Object.Raw = nil
	}
	return *req.DeepCopy()
}

// applyPatch applies a patch that the step has written.
func (r *run) applyPatch(onPod *podRun, resp admission.Response) error {
	operations := resp.Patch
	if len(resp.Patches) > 0 {
		if len(operations) > 0 {
			return errors.New("it returned both Patches and Patch; set only one of them")
		}
		operations = patch.AppendJSON(nil, resp.Patches)
	}
	if len(operations) == 0 {
		return nil
	}
	if resp.PatchType != nil && *resp.PatchType != admissionv1.PatchTypeJSONPatch {
		return fmt.Errorf("it returned a patch of type %q; the API server takes JSONPatch only", *resp.PatchType)
	}
	if !absent(r.object.raw) {
		if err := r.object.apply(operations); err != nil || onPod == nil {
			return err
		}
		if _, err := r.object.view(podType, newPod); err != nil {
			return fmt.Errorf("its patch makes an object that the API server cannot read: %w", err)
		}
		return nil
	}
	if _, count, err := patch.Apply([]byte("{}"), operations); err == nil && count == 0 {
		return nil
	}
	return fmt.Errorf("it returned a patch for %s, which carries no object to change", r.request.Operation)
}

var podType = reflect.TypeFor[*corev1.Pod]()

func newPod() runtime.Object { return &corev1.Pod{} }

// Pods holds the pods of the extensions that are running. An extension returns the change to its pod as a patch.
// Because Pods made that patch, the changed pod is known without applying it. The zero value is ready for use. It also
// serves requests that no extension is running on.
type Pods struct {
	mu   sync.Mutex
	runs map[*byte]*podRun // by the first byte of the object in the extension's request
}

// podRun is one run of an extension on a pod. It is nil for a run on another object.
type podRun struct {
	pods  *Pods
	key   *byte
	raw   []byte
	index jsontext.Index // of raw
	last  bool           // no step follows this one

	mu    sync.Mutex
	over  bool
	pod   *corev1.Pod    // decoded from raw; the extension gets copies
	made  patch.Patch    // the latest patch
	after runtime.Object // a copy of the pod that the patch leads to, unless last
}

// begin registers the run of a step on a request, if the request carries a pod.
func (p *Pods) begin(r *run, i int, req *admission.Request) (*podRun, error) {
	if p == nil || !carriesPod(req) {
		return nil, nil
	}
	pod, err := r.object.view(podType, newPod)
	if err != nil {
		return nil, err
	}
	onPod := &podRun{
		pods: p, key: &req.Object.Raw[0], raw: r.object.raw, index: r.object.memory.index, pod: pod.(*corev1.Pod),
		last: i == len(r.steps)-1 && !r.reinvoke,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs == nil {
		p.runs = map[*byte]*podRun{}
	}
	p.runs[onPod.key] = onPod
	return onPod, nil
}

// end ends a run, and waits for a patch that is being made. A step that was left behind can still ask for pods and
// patches. It gets them as if it were not running, and nothing of the call is touched.
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

// find returns the run that a request belongs to, locked, or nil if there is none. An object that the extension has
// overwritten belongs to no run.
func (p *Pods) find(req *admission.Request) *podRun {
	if len(req.Object.Raw) == 0 {
		return nil
	}
	p.mu.Lock()
	onPod := p.runs[&req.Object.Raw[0]]
	p.mu.Unlock()
	if onPod == nil || !carriesPod(req) {
		return nil
	}
	onPod.mu.Lock()
	if onPod.over || !bytes.Equal(onPod.raw, req.Object.Raw) {
		onPod.mu.Unlock()
		return nil
	}
	return onPod
}

// isAnswered reports whether a response holds the patch that Pods made, and returns that patch with its pod. The pod is
// nil if no step follows. Any later change of the extension to its pod is ignored, as it is after PatchResponseFromRaw.
func (r *podRun) isAnswered(resp admission.Response) (made patch.Patch, pod runtime.Object, ok bool) {
	if r == nil {
		return patch.Patch{}, nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made.Len() == 0 || len(resp.Patch) > 0 || resp.PatchType == nil ||
		*resp.PatchType != admissionv1.PatchTypeJSONPatch || !r.made.Is(resp.Patches) {
		return patch.Patch{}, nil, false
	}
	return r.made, r.after, true
}

// Pod returns the pod that a request carries, or nil if it carries none. The pod belongs to the caller. A DELETE has
// only an old object, and an extension can be registered for other kinds than pods.
func (p *Pods) Pod(req admission.Request) (*corev1.Pod, error) {
	if onPod := p.find(&req); onPod != nil {
		defer onPod.mu.Unlock()
		return copiedPod(onPod.pod), nil
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

func copiedPod(pod *corev1.Pod) *corev1.Pod { return sharing(pod, (*corev1.Pod).DeepCopy) }

func carriesPod(req *admission.Request) bool {
	return !absent(req.Object.Raw) && (req.Kind.Kind == "" || req.Kind.Group == "" && req.Kind.Kind == "Pod")
}

// Patch returns the response to a request: the difference between the pod that it carries and pod. It does not keep
// pod.
func (p *Pods) Patch(req admission.Request, pod *corev1.Pod) admission.Response {
	if pod == nil {
		return unpatched("the pod is nil; check for that first, a request may carry none")
	}
	onPod := p.find(&req)
	if onPod == nil {
		before, err := p.Pod(req)
		if err == nil && before == nil {
			err = fmt.Errorf("the request carries no pod to compare with (%s of %s)", req.Operation, req.Kind.Kind)
		}
		if err != nil {
			return unpatched("%w", err)
		}
		onPod = &podRun{raw: req.Object.Raw, pod: before, last: true}
		onPod.mu.Lock()
	}
	defer onPod.mu.Unlock()
	made, err := patch.Compare(onPod.raw, onPod.index, onPod.pod, pod)
	if err != nil {
		return unpatched("%w", err)
	}
	if onPod.made, onPod.after = made, nil; !onPod.last {
		onPod.after = copiedPod(pod)
	}
	resp := admission.Allowed("")
	if made.Len() > 0 {
		resp.Patches, resp.PatchType = made.Operations(), new(admissionv1.PatchTypeJSONPatch)
	}
	return resp
}

func unpatched(format string, args ...any) admission.Response {
	return admission.Errored(codeInternalError, fmt.Errorf("eirinix: PatchFromPod: "+format, args...))
}
