package apiserver

// This file calls webhooks with AdmissionReviews, verifies the responses, and applies patches and failurePolicy.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/utils/ptr"
)

// failedCall is a call without a verdict. The failurePolicy decides whether it fails the request.
type failedCall struct {
	webhook string
	reason  error
}

func (f *failedCall) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", f.webhook, f.reason)
}
func (f *failedCall) Unwrap() error { return f.reason }

// rejection is a denial, both in the API server's words and in the step's.
type rejection struct {
	*apierrors.StatusError
	meant Denial
}

func (r *rejection) Unwrap() error { return r.StatusError }

// failed applies the failurePolicy to a failed call. Its error is nil if the call has not failed, or if the policy ignores
// the failure.
func (a *admissionRun) failed(ctx context.Context, w *webhook, err error) (refused error, ignored bool) {
	failure, ok := errors.AsType[*failedCall](err)
	if !ok {
		return err, false // a verdict, or an error of the API server itself
	}
	if ptr.Deref(w.FailurePolicy, "") != admissionregistrationv1.Ignore {
		return apierrors.NewInternalError(failure), false
	}
	if ctx.Err() != nil { // the request's deadline has passed, not only the webhook's
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0), true
	}
	return nil, true
}

// callMutating calls a mutating webhook and applies its patch.
func (a *admissionRun) callMutating(ctx context.Context, w *webhook, i *invocation, request *admissionv1.AdmissionRequest, round int) (changed bool, err error) {
	record, resp, err := a.call(ctx, w, request, round)
	if err == nil && len(resp.Patch) > 0 {
		changed, err = a.apply(w, i, resp.Patch)
		record.Err = err
	}
	refused, ignored := a.failed(ctx, w, err)
	record.Changed, record.Ignored = changed, ignored
	a.calls = append(a.calls, *record)
	return changed, refused
}

// apply applies a patch as the API server does, and checks that the result is an object. As in the API server,
// failurePolicy Ignore does not excuse a patch that does not apply.
func (a *admissionRun) apply(w *webhook, i *invocation, patch []byte) (changed bool, err error) {
	operations, err := jsonpatchv4.DecodePatch(patch)
	if err != nil {
		return false, &failedCall{w.Name, fmt.Errorf("received undecodable patch in webhook response: %w", err)}
	}
	if len(operations) == 0 {
		return false, nil
	}
	if i.object.Absent() {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", w.Name))
	}
	raw, err := operations.Apply(i.object.Raw)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	patched := NewDocument(i.kind, raw)
	if kind := patched.Unstructured().GroupVersionKind(); kind.Kind != "" && kind != i.kind {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q changed the object's kind to %s, but the API server can only store a %s", w.Name, kind.Kind, i.kind.Kind))
	}
	if _, err := patched.Typed(); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if patched.Kind == a.current.Kind {
		a.current = patched
	} else {
		a.ahead = patched
	}
	return !patched.Same(i.object), nil
}

// validate calls the validating webhooks concurrently. Of several refusals an API server returns any. This one
// returns the first in order, so that tests see the same every time.
func (a *admissionRun) validate(ctx context.Context, object Document) error {
	type outcome struct {
		record *WebhookCall
		err    error
	}
	var outcomes []*outcome
	var calls sync.WaitGroup
	for _, w := range a.s.webhooks {
		if !w.validating {
			continue
		}
		invocation, err := a.match(ctx, w, object)
		if err != nil {
			calls.Wait()
			return err
		}
		if invocation == nil {
			continue
		}
		o := &outcome{}
		outcomes = append(outcomes, o)
		calls.Go(func() {
			record, _, err := a.call(ctx, w, a.admissionRequest(invocation), 0)
			o.record = record
			o.err, record.Ignored = a.failed(ctx, w, err)
		})
	}
	calls.Wait()
	var first error
	for _, o := range outcomes {
		a.calls = append(a.calls, *o.record)
		if first == nil {
			first = o.err
		}
	}
	return first
}

// call sends one AdmissionReview and checks the response.
func (a *admissionRun) call(ctx context.Context, w *webhook, request *admissionv1.AdmissionRequest, round int) (*WebhookCall, *admissionv1.AdmissionResponse, error) {
	record := &WebhookCall{Configuration: w.configuration, Webhook: w.Name, Round: round}
	began := time.Now()
	resp, err := a.review(ctx, w, request, record)
	record.Took, record.Response, record.Err = time.Since(began), resp, err
	if err != nil {
		return record, nil, err
	}
	if a.feedback.add(w.Name, resp); !resp.Allowed {
		record.Err = refusedBy(w.Name, resp.Result)
	}
	return record, resp, record.Err
}

func (a *admissionRun) review(ctx context.Context, w *webhook, request *admissionv1.AdmissionRequest, record *WebhookCall) (*admissionv1.AdmissionResponse, error) {
	if s := w.SideEffects; a.DryRun && (s == nil || *s != admissionregistrationv1.SideEffectClassNone && *s != admissionregistrationv1.SideEffectClassNoneOnDryRun) {
		return nil, webhookerrors.NewDryRunUnsupportedErr(w.Name)
	}
	record.Request = request
	question, answer, err := reviews(a.s.Version, w.AdmissionReviewVersions, record.Request)
	if err != nil {
		return nil, &failedCall{w.Name, fmt.Errorf("could not create admission objects: %w", err)}
	}
	timeout := time.Duration(ptr.Deref(w.TimeoutSeconds, 0)) * time.Second
	if timeout = cmp.Or(max(a.WebhookTimeout, 0), timeout); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	post := w.client.Post().Body(question)
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > 0 {
			if a.WebhookTimeout <= 0 { // an API server rounds up to seconds
				left = (left + time.Second - 1).Truncate(time.Second)
			}
			post.Timeout(left)
		}
	}
	ctx = context.WithValue(ctx, traceKey{}, &callTrace{trace: a.trace, webhook: w.Name, round: record.Round})
	if err := post.Do(ctx).Into(answer); err != nil {
		return nil, &failedCall{w.Name, fmt.Errorf("failed to call webhook: %w", err)}
	}
	resp, err := verify(request.UID, !w.validating, answer)
	if err != nil {
		return nil, &failedCall{w.Name, fmt.Errorf("received invalid webhook response: %w", err)}
	}
	return resp, nil
}

// admissionRequest returns the AdmissionRequest for a webhook.
func (a *admissionRun) admissionRequest(i *invocation) *admissionv1.AdmissionRequest {
	extra := map[string]authenticationv1.ExtraValue{}
	for key, values := range a.User.Extra {
		extra[key] = values
	}
	return &admissionv1.AdmissionRequest{
		UID:             uuid.NewUUID(),
		Kind:            metav1.GroupVersionKind(i.kind),
		Resource:        metav1.GroupVersionResource(i.resource),
		SubResource:     a.Subresource,
		RequestKind:     new(metav1.GroupVersionKind(a.main().Kind)),
		RequestResource: new(metav1.GroupVersionResource(a.Resource)), RequestSubResource: a.Subresource,
		Name: a.Name, Namespace: a.Namespace, Operation: a.Operation,
		UserInfo:  authenticationv1.UserInfo{Username: a.User.Name, UID: a.User.UID, Groups: a.User.Groups, Extra: extra},
		Object:    runtime.RawExtension{Raw: i.object.Raw},
		OldObject: runtime.RawExtension{Raw: i.oldObject.Raw},
		DryRun:    new(a.DryRun),
		Options:   runtime.RawExtension{Object: a.options},
	}
}

// reviews returns an AdmissionReview with the request, and an empty one for the response. Their version is the
// preferred one if the webhook knows it, else the first version that both sides know.
func reviews(preferred string, known []string, request *admissionv1.AdmissionRequest) (question, answer runtime.Object, err error) {
	if preferred != "" && slices.Contains(known, preferred) {
		known = []string{preferred}
	}
	for _, version := range known {
		switch version {
		case admissionv1.SchemeGroupVersion.Version:
			return &admissionv1.AdmissionReview{Request: request}, &admissionv1.AdmissionReview{}, nil
		case admissionv1beta1.SchemeGroupVersion.Version:
			old := &admissionv1beta1.AdmissionRequest{}
			raw, err := json.Marshal(request)
			if err == nil {
				err = json.Unmarshal(raw, old)
			}
			return &admissionv1beta1.AdmissionReview{Request: old}, &admissionv1beta1.AdmissionReview{}, err
		}
	}
	return nil, nil, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
}

// verify returns an error for a response that the API server would reject. v1beta1 has fewer rules, as in the API
// server.
func verify(uid types.UID, mutating bool, answer runtime.Object) (*admissionv1.AdmissionResponse, error) {
	absent := errors.New("webhook response was absent")
	if old, ok := answer.(*admissionv1beta1.AdmissionReview); ok {
		r := old.Response
		if r == nil {
			return nil, absent
		}
		resp := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: r.Allowed, Result: r.Result, AuditAnnotations: r.AuditAnnotations, Warnings: r.Warnings}
		if mutating {
			resp.Patch = r.Patch
		}
		return resp, nil
	}
	review := answer.(*admissionv1.AdmissionReview)
	resp, want := review.Response, admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	if resp == nil {
		return nil, absent
	}
	patch, patchType := len(resp.Patch) > 0, resp.PatchType != nil
	switch {
	case resp.UID != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, resp.UID)
	case review.GroupVersionKind() != want:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want.String(), review.GroupVersionKind().String())
	case !mutating && patch:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && patchType:
		return nil, errors.New("validating webhook may not return response.patchType")
	case patch && !patchType:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case !patch && patchType:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case patchType && *resp.PatchType != admissionv1.PatchTypeJSONPatch:
		return nil, fmt.Errorf("unsupported patch type %q", *resp.PatchType)
	}
	return resp, nil
}

// refusedBy returns a denial as the user sees it, and as the step meant it.
func refusedBy(webhook string, result *metav1.Status) *rejection {
	if result == nil {
		result = &metav1.Status{}
	}
	shown := webhookerrors.ToStatusErr(webhook, result.DeepCopy())
	return &rejection{StatusError: shown, meant: Denial{
		Webhook: webhook, Code: shown.ErrStatus.Code, Reason: result.Reason, Message: result.Message, Details: result.Details,
	}}
}
