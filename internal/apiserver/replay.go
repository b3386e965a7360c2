package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// UnknownPathError tells that no webhook is called on a path.
type UnknownPathError struct {
	Path  string
	Known []string
}

func (e *UnknownPathError) Error() string {
	return fmt.Sprintf("no webhook is called on %s, but on %s", e.Path, strings.Join(e.Known, ", "))
}

// Replay sends an AdmissionRequest just as it is to the webhook on a path, whatever its rules and selectors say: an API
// server has decided on that before. The outcome is that of this one call. Without a path, the webhooks are called that
// an API server would call for such a request.
func (s *Server) Replay(ctx context.Context, path string, request *admissionv1.AdmissionRequest) (*Outcome, error) {
	if path == "" {
		return s.Send(ctx, requestOf(request))
	}
	w, mutating, err := s.webhookAt(path)
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, w, mutating, request)
}

// Recall gives the outcome of such a call if it were answered like this, in that version of AdmissionReview: by the webhook
// on the path, or without one by a mutating webhook of ours.
func (s *Server) Recall(ctx context.Context, path, version string, request *admissionv1.AdmissionRequest, answer http.Handler) (*Outcome, error) {
	w, mutating := &webhook{}, true
	w.Name, w.ClientConfig.URL = "recorded", new("https://webhook.invalid/")
	w.SideEffects = new(admissionregistrationv1.SideEffectClassNone) // or a dry run would not be sent
	if path != "" {
		var err error
		if w, mutating, err = s.webhookAt(path); err != nil {
			return nil, err
		}
	}
	recorded := *w
	recorded.AdmissionReviewVersions = []string{version}
	var err error
	if recorded.client, err = clientOf(w.ClientConfig, answer); err != nil {
		return nil, err
	}
	return s.ask(ctx, &recorded, mutating, request)
}

func (s *Server) ask(ctx context.Context, w *webhook, mutating bool, request *admissionv1.AdmissionRequest) (*Outcome, error) {
	a := &admissionRun{s: s, resolved: &resolved{Request: requestOf(request)}, trace: &Trace{}}
	kind := schema.GroupVersionKind(request.Kind)
	var err error
	if a.object, err = received(kind, request.Object.Raw); err != nil {
		return nil, fmt.Errorf("request.object: %w", err)
	}
	if a.oldObject, err = received(kind, request.OldObject.Raw); err != nil {
		return nil, fmt.Errorf("request.oldObject: %w", err)
	}
	a.current = a.object
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if mutating {
		_, err := a.answerMutating(ctx, w, &invocation{kind: kind, object: a.object, oldObject: a.oldObject}, request, 0)
		return a.outcome(err)
	}
	record, _, err := a.call(ctx, w, request, 0, false)
	if err != nil {
		err, record.Ignored = a.failed(ctx, w, err)
	}
	a.calls = append(a.calls, *record)
	return a.outcome(err)
}

// received is an object of a request, which came from elsewhere.
func received(kind schema.GroupVersionKind, raw []byte) (Document, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return Document{}, nil
	}
	d := NewDocument(kind, raw)
	if !d.isObject() {
		return Document{}, fmt.Errorf("it is no object: %.100q", raw)
	}
	_, err := d.Typed()
	return d, err
}

// requestOf is the request that a webhook was told of.
func requestOf(told *admissionv1.AdmissionRequest) Request {
	r := Request{
		Operation: told.Operation, Resource: schema.GroupVersionResource(told.Resource), Subresource: told.SubResource,
		Namespace: told.Namespace, Name: told.Name, DryRun: told.DryRun != nil && *told.DryRun,
		User: user.DefaultInfo{Name: told.UserInfo.Username, UID: told.UserInfo.UID, Groups: told.UserInfo.Groups, Extra: map[string][]string{}},
	}
	for key, values := range told.UserInfo.Extra {
		r.User.Extra[key] = values
	}
	if len(told.Object.Raw) > 0 {
		r.Object = told.Object.Raw
	}
	if len(told.OldObject.Raw) > 0 {
		r.OldObject = told.OldObject.Raw
	}
	return r
}

// webhookAt finds the webhook that is called on a path. In front of it may stand what a program shares its server with.
func (s *Server) webhookAt(path string) (w *webhook, mutating bool, err error) {
	unknown := &UnknownPathError{Path: path}
	for _, all := range [][]*webhook{s.mutating, s.validating} {
		for _, w := range all {
			if strings.HasSuffix(w.path(), path) {
				return w, slices.Contains(s.mutating, w), nil
			}
			unknown.Known = append(unknown.Known, w.path())
		}
	}
	return nil, false, unknown
}

// path is where the webhook is called.
func (w *webhook) path() string {
	if s := w.ClientConfig.Service; s != nil {
		return *s.Path
	}
	target, err := url.Parse(*w.ClientConfig.URL)
	if err != nil {
		return "" // newWebhook has seen that it can be parsed
	}
	return target.Path
}
