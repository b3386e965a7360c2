package eirinixtest

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

const idempotent = "idempotent"

// foreignAnnotation is what another webhook is said to have left.
const foreignAnnotation = "eirinixtest.example/changed-by-another-webhook"

func (h *Harness) idempotent(object any, options []RequestOption) error {
	defer h.log.mute()()
	requests, err := h.requests(object, options)
	if err != nil {
		return err
	}
	for _, r := range requests {
		if r.Object == nil || r.Operation == admissionv1.Connect {
			continue // there is nothing to change
		}
		if err := h.idempotentFor(r); err != nil {
			return err
		}
	}
	return nil
}

func (h *Harness) idempotentFor(r Request) error {
	if err := h.leavesOld(r); err != nil {
		return err
	}
	first, err := h.admitted(idempotent, r)
	if err != nil {
		return err
	}
	again := func(d apiserver.Document) Request {
		r := r
		r.Object = d
		return r
	}
	if err := h.stable(again(first.after()), "run a second time on its own result, it changed that again"); err != nil {
		return err
	}
	touched := first.after().With(func(u *unstructured.Unstructured) {
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[foreignAnnotation] = "true"
		u.SetAnnotations(annotations)
	})
	if err := h.stable(again(touched), "called again after another webhook had added an annotation (reinvocation), it changed its own result again"); err != nil {
		return err
	}
	for _, inFront := range []bool{true, false} {
		if r.Operation != admissionv1.Create {
			break // what has containers has them for good, pods for one
		}
		injected := first.after().With(func(u *unstructured.Unstructured) { injectContainer(u.Object, inFront) })
		if sameJSON(injected.Raw, first.after().Raw) {
			break // it has no containers
		}
		second, err := h.send(again(injected))
		if err != nil {
			return fmt.Errorf("eirinixtest: %w", err)
		}
		if !second.Allowed {
			break // the container was made up here, and what may be refused about it says nothing of the object
		}
		if err := h.stable(again(second.after()), "called again after another webhook had added a container (reinvocation), it does not come to rest"); err != nil {
			return err
		}
	}
	if r.Operation == admissionv1.Create && r.Subresource == "" {
		update := again(first.after())
		update.Operation, update.OldObject = admissionv1.Update, first.after()
		return h.stable(update, "an update that changed nothing became one that did; whoever applies the object again and again (a controller, kubectl apply) never comes to rest")
	}
	return nil
}

// leavesOld sends an update of an object from before the steps were registered: one that it breaks cannot be edited any more.
func (h *Harness) leavesOld(r Request) error {
	if r.Operation != admissionv1.Update || r.Subresource != "" {
		return nil
	}
	before, err := h.server.Read(r.Object)
	if err != nil {
		return fmt.Errorf("eirinixtest: %w", err)
	}
	r.Object, r.OldObject = before, before
	result, err := h.send(r)
	if err != nil {
		return fmt.Errorf("eirinixtest: %w", err)
	}
	if result.Allowed || result.Denial != nil || !apierrors.IsInvalid(result.Err) || len(result.Patch) == 0 {
		return nil
	}
	return &violation{
		property: idempotent, proof: result.Err.Error() + "\n" + patchText(result.Patch),
		what:   fmt.Sprintf("an update of an object that it has not changed when that was created is refused by the API server, and with it the user's own edit (%s)", stepsOf(result)),
		remedy: "change it on CREATE alone (Settings.Operations), or on UPDATE only what may change then: what a Pod or a Job is made of may not.",
	}
}

// stable sends an object that must be left as it is.
func (h *Harness) stable(r Request, otherwise string) error {
	result, err := h.admitted(idempotent, r)
	if err != nil {
		return err
	}
	if sameJSON(result.before().Raw, result.after().Raw) {
		return nil
	}
	proof := result.Diff()
	if proof == "" {
		proof = patchText(result.Patch)
	}
	return &violation{
		property: idempotent, what: fmt.Sprintf("%s (%s)", otherwise, stepsOf(result)), proof: proof,
		remedy: "look whether what you are about to add is there already, by its name and not by its position, and set values instead of adding to them: the API server may call a webhook twice for one object, and sends it again with every update.",
	}
}

// injectContainer adds a container wherever the tree has containers.
func injectContainer(tree map[string]any, inFront bool) {
	for key, value := range tree {
		switch value := value.(type) {
		case map[string]any:
			injectContainer(value, inFront)
		case []any:
			if key != "containers" {
				continue
			}
			foreign := any(map[string]any{"name": "injected-by-another-webhook", "image": imageIn(value)})
			if inFront {
				tree[key] = append([]any{foreign}, value...)
			} else {
				tree[key] = append(value, foreign)
			}
		}
	}
}

// imageIn is an image that containers beside it have already, so that nothing is said against it.
func imageIn(containers []any) any {
	for _, c := range containers {
		if c, ok := c.(map[string]any); ok && c["image"] != nil {
			return c["image"]
		}
	}
	return "example.org/sidecar:1"
}

// stepsOf names the steps that ran.
func stepsOf(r *Result) string {
	names, seen := "", map[string]bool{}
	for _, s := range r.Steps {
		if seen[s.Step] {
			continue
		}
		seen[s.Step] = true
		if names != "" {
			names += ", "
		}
		names += s.Step
	}
	if len(seen) == 1 {
		return "step " + names
	}
	return "steps " + names
}
