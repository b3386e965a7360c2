package apiserver

// This file replays recorded requests.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// UnknownPathError reports that no webhook is called on a path.
type UnknownPathError struct {
	Path  string
	Known []string
}

func (e *UnknownPathError) Error() string {
	return fmt.Sprintf("no webhook is called on %s, but on %s", e.Path, strings.Join(e.Known, ", "))
}

// Replay sends an AdmissionRequest unchanged to the webhook on a path. It ignores the webhook's rules and selectors,
// because an API server has applied them before. The outcome is that of this one call. Without a path, it calls the
// webhooks that an API server would call for such a request.
func (s *Server) Replay(ctx context.Context, path string, request *admissionv1.AdmissionRequest) (*Outcome, error) {
	if path == "" {
		return s.Send(ctx, requestOf(request))
	}
	w, err := s.webhookAt(path)
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, w, request)
}

// Recall returns the outcome of such a call if answer handled it, in this version of AdmissionReview. The webhook is
// the one on the path. Without a path, it is a mutating webhook that Recall defines.
func (s *Server) Recall(ctx context.Context, path, version string, request *admissionv1.AdmissionRequest, answer http.Handler) (*Outcome, error) {
	w := &webhook{}
	w.Name, w.ClientConfig.URL = "recorded", new("https://webhook.invalid/")
	w.SideEffects = new(admissionregistrationv1.SideEffectClassNone) // otherwise a dry run would not be sent
	if path != "" {
		var err error
		if w, err = s.webhookAt(path); err != nil {
			return nil, err
		}
	}
	recorded := *w
	recorded.AdmissionReviewVersions = []string{version}
	if err := recorded.connect(answer); err != nil {
		return nil, err
	}
	return s.ask(ctx, &recorded, request)
}

func (s *Server) ask(ctx context.Context, w *webhook, request *admissionv1.AdmissionRequest) (*Outcome, error) {
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
	if !w.validating {
		_, err := a.callMutating(ctx, w, &invocation{kind: kind, object: a.object, oldObject: a.oldObject}, request, 0)
		return a.outcome(err)
	}
	record, _, err := a.call(ctx, w, request, 0)
	err, record.Ignored = a.failed(ctx, w, err)
	a.calls = append(a.calls, *record)
	return a.outcome(err)
}

// received returns an object of a request from elsewhere. It returns an error if the object cannot be read.
func received(kind schema.GroupVersionKind, raw []byte) (Document, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return Document{}, nil
	}
	var tree map[string]json.RawMessage
	if json.Unmarshal(raw, &tree) != nil {
		return Document{}, fmt.Errorf("it is no object: %.100q", raw)
	}
	d := NewDocument(kind, raw)
	_, err := d.Typed()
	return d, err
}

// requestOf returns the request that led to an AdmissionRequest.
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

// webhookAt finds the webhook that is called on a path. The webhook's path can have a prefix if the program shares
// its server.
func (s *Server) webhookAt(path string) (*webhook, error) {
	unknown := &UnknownPathError{Path: path}
	for _, w := range s.webhooks {
		if strings.HasSuffix(w.target.Path, path) {
			return w, nil
		}
		unknown.Known = append(unknown.Known, w.target.Path)
	}
	return nil, unknown
}
