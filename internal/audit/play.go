package audit

// This file asks the steps about one object: it makes the requests that an API server would send, and compares the
// answers to different users.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	mostPaths = 50
	mostText  = 1000 // bytes of a failure's message
)

// newUsers returns the users with whom each step is asked. A step that decides alike for all of them does not look at
// the user.
func newUsers() []authenticationv1.UserInfo {
	return []authenticationv1.UserInfo{
		{Username: "audit-" + rand.String(8), UID: string(uuid.NewUUID()), Groups: []string{"system:authenticated"}},
		{Username: "kubernetes-admin", Groups: []string{"system:masters", "system:authenticated"}},
		{
			Username: "system:serviceaccount:kube-system:replicaset-controller", UID: string(uuid.NewUUID()),
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
		},
	}
}

// answer is what a step says of an object. The zero answer is that it is content.
type answer struct {
	asked   bool
	result  Result
	message string
	paths   []string

	panicked bool
	stack    []byte
}

func (a *answer) equal(b *answer) bool {
	return a.asked == b.asked && a.result == b.result && a.message == b.message && slices.Equal(a.paths, b.paths)
}

// object is an object of a target, with its identity.
type object struct {
	*target
	head *head
	raw  []byte
}

// walk asks the steps with one operation, in order: each mutating step about the object as those before it have left
// it, and the validating steps about the result. It returns the answers by step.
func (e *engine) walk(ctx context.Context, o *object, operation admissionv1.Operation) ([]answer, error) {
	answers := make([]answer, len(o.steps))
	if !slices.ContainsFunc(o.steps, func(s *step) bool { return s.wants(o.resource, operation) }) {
		return answers, nil
	}
	req := o.request(operation)
	if operation == admissionv1.Create {
		stripped, err := asCreated(o.raw)
		if err != nil {
			stripped = o.raw // the steps' own decoders return the error
		}
		req.Object.Raw = stripped
	}
	for i, s := range o.steps {
		selected, err := e.selects(ctx, o.target, s, req)
		if err != nil {
			return nil, err
		}
		if selected && s.condition != nil {
			selected, err = s.condition(ctx, req)
			if err != nil && ctx.Err() != nil {
				return nil, err
			}
			if err != nil {
				message := shortened("its matchConditions cannot be evaluated: " + err.Error())
				answers[i] = answer{asked: true, result: Failed, message: message + s.afterCondition()}
				continue
			}
		}
		if !selected {
			continue
		}
		verdict, a := e.ask(ctx, s, req)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if s.Registered.Mode == webhookconf.ModeDeny && verdict.Patch != nil {
			if changed, err := verdict.Changed(req.Object.Raw); err == nil {
				req = req.DeepCopy() // a step that was left behind can still read the old one
				req.Object.Raw = changed
			}
		}
		answers[i] = a
	}
	return answers, nil
}

// request returns the request for an operation on an object as it is stored.
func (o *object) request(operation admissionv1.Operation) *admissionv1.AdmissionRequest {
	kind := metav1.GroupVersionKind{Group: o.kind.Group, Version: o.kind.Version, Kind: o.kind.Kind}
	resource := metav1.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}
	req := &admissionv1.AdmissionRequest{
		Kind: kind, RequestKind: new(kind), Resource: resource, RequestResource: new(resource),
		Name: o.head.Metadata.Name, Namespace: o.head.Metadata.Namespace, Operation: operation,
		Object: runtime.RawExtension{Raw: o.raw}, DryRun: new(true),
		Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`)},
	}
	if o.Group == "" && o.isNamespaces() {
		req.Namespace = req.Name // as in an API server
	}
	if operation == admissionv1.Update {
		req.OldObject.Raw = o.raw
		req.Options.Raw = []byte(`{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`)
	}
	return req
}

// notCreated lists the members of metadata that the API server sets when an object is created.
var notCreated = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
	"managedFields", "selfLink",
}

// asCreated returns an object as it would be sent to be created again: without what the cluster has added.
func asCreated(raw []byte) (_ []byte, err error) {
	var members, metadata map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	delete(members, "status")
	if text, ok := members["metadata"]; ok {
		if err := json.Unmarshal(text, &metadata); err != nil {
			return nil, err
		}
		for _, name := range notCreated {
			delete(metadata, name)
		}
		if members["metadata"], err = join(metadata); err != nil {
			return nil, err
		}
	}
	return join(members)
}

// join returns an object with these members, in the order of their names. Their texts stay as they are.
func join(members map[string]json.RawMessage) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(members)
	return bytes.TrimSpace(text.Bytes()), err
}

// ask plays a step on a request with several users. If their answers differ, that is the answer. The verdict is that
// for the first user.
func (e *engine) ask(ctx context.Context, s *step, req *admissionv1.AdmissionRequest) (admit.Verdict, answer) {
	verdict := e.play(ctx, s, req, 0)
	a := answerOf(verdict)
	if a.panicked || verdict.Unreadable || errors.Is(verdict.Err, context.DeadlineExceeded) || ctx.Err() != nil {
		return verdict, a // the others would only take time
	}
	for user := 1; user < len(e.users); user++ {
		other := e.play(ctx, s, req, user)
		if alike(verdict, other) {
			continue
		}
		if errors.Is(other.Err, context.DeadlineExceeded) {
			return verdict, answerOf(other)
		}
		message := "its result depends on the user who sends a request, and an audit has no user; set Settings.ReadsUser to leave the step out"
		if !alike(verdict, e.play(ctx, s, req, 0)) || !alike(other, e.play(ctx, s, req, user)) {
			message = "its result differs from run to run for the same request; make the step deterministic"
		}
		return verdict, answer{asked: true, result: Untold, message: message}
	}
	return verdict, a
}

func (e *engine) play(ctx context.Context, s *step, req *admissionv1.AdmissionRequest, user int) admit.Verdict {
	of := *req
	of.UID, of.UserInfo = uuid.NewUUID(), e.users[user]
	return s.player.Play(ctx, &of)
}

// alike reports whether two verdicts are the same. The texts of failures often differ, as in the port of a connection.
func alike(a, b admit.Verdict) bool {
	switch {
	case a.Err != nil || b.Err != nil:
		return (a.Err != nil) == (b.Err != nil) && (a.Panic != nil) == (b.Panic != nil)
	case a.Denied != nil || b.Denied != nil:
		return a.Denied != nil && b.Denied != nil && a.Denied.Message == b.Denied.Message
	}
	return bytes.Equal(a.Patch, b.Patch)
}

// answerOf returns the answer that a verdict means.
func answerOf(v admit.Verdict) answer {
	a := answer{asked: true}
	switch {
	case v.Panic != nil:
		a.result, a.message = Failed, fmt.Sprintf("it panicked: %s. Later panics of the step are only counted", shortened(fmt.Sprint(v.Panic)))
		a.panicked, a.stack = true, v.Stack
	case v.Unreadable:
		a.result, a.message = Failed, unreadable(v.Err)
	case v.Err != nil:
		a.result, a.message = Failed, shortened(v.Err.Error())
	case v.Denied != nil:
		a.result, a.message = Denied, v.Denied.Message
	case v.Patch != nil:
		a.result, a.paths = Drift, v.Paths()
		a.message = "it would change the object"
		if more := len(a.paths) - mostPaths; more > 0 {
			a.paths = a.paths[:mostPaths]
			a.message = fmt.Sprintf("it would change the object, in %d more paths than these", more)
		}
	}
	return a
}

// unreadable describes why an object does not decode. The text of the error can hold values of the object.
func unreadable(err error) string {
	message := "the object does not decode into the type of the step"
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && mismatch.Field != "" {
		message += fmt.Sprintf(": the field %s is no %s", mismatch.Field, mismatch.Type)
	}
	return message
}

func shortened(text string) string { return lograte.Brief(text, mostText) }
