package audit

// This file asks the steps about one object: it makes the requests that an API server would send, plays the steps on them
// in this process, and compares the answers to different users.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/hang"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/patch"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	maxPaths = 50
	maxText  = 1000 // bytes of a failure's message
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

// answer is what a step says of an object: a Finding without their names. The zero answer is that it has not been asked.
type answer struct {
	Finding
	gap   bool   // the step has failed, so what it would say is not known
	stack []byte // of a panic
}

// object is an object of a target, with its identity.
type object struct {
	*target
	head             *head
	stored           []byte
	created, updated []byte // to be created or updated, as the steps so far have left it
}

// operations are those with which steps can be asked about an object.
var operations = [...]admissionv1.Operation{admissionv1.Create, admissionv1.Update}

// answer asks a step with the first operation that it is called for. In ModeDeny, its changes become those of the object.
func (e *engine) answer(ctx context.Context, o *object, s *step) (answer, error) {
	switch {
	case s.unknown:
		return answer{}, nil
	case s.Converts != nil:
		return e.convert(ctx, o, s)
	}
	for _, operation := range operations {
		if !s.wants(o.resource, operation) {
			continue
		}
		req := o.request(operation)
		selected, err := e.selects(ctx, o.target, s, req)
		if err == nil && selected && s.condition != nil {
			selected, err = s.condition(ctx, req)
			if err != nil && ctx.Err() == nil {
				message := shortened("its matchConditions cannot be evaluated: " + err.Error())
				return answer{Finding: Finding{Operation: operation, Mode: e.mode(ctx, s, req), Result: Failed, Message: message + s.afterCondition()}}, nil
			}
		}
		if err != nil {
			return answer{}, err
		}
		if !selected {
			continue
		}
		if s.Served.Rule != nil && s.Served.Run == nil {
			req.OldObject.Raw = nil // which would excuse the object
		}
		verdict, a, err := e.ask(ctx, s, req)
		if err == nil && a.Result == Denied {
			a.Frozen, err = e.freezes(ctx, o, s)
		}
		if err != nil {
			return answer{}, err
		}
		a.Operation, a.Mode = operation, e.mode(ctx, s, req)
		if a.Mode == webhookconf.ModeDeny {
			for _, text := range []*[]byte{&o.created, &o.updated} {
				if changed, err := verdict.Changed(*text); err == nil {
					*text = changed
				}
			}
		}
		return a, nil
	}
	return answer{}, nil
}

// freezes reports whether a step that denies an object denies an update, too, that leaves it as it is.
func (e *engine) freezes(ctx context.Context, o *object, s *step) (bool, error) {
	if !s.wants(o.resource, admissionv1.Update) {
		return false, nil
	}
	req := o.request(admissionv1.Update)
	req.Object.Raw = o.stored
	verdict, err := e.play(ctx, s, req, 0)
	return verdict.Denied != nil || verdict.Err != nil, err
}

// mode returns the mode of a step that is in force for a request. It is empty if it depends on labels of a namespace that
// cannot be read.
func (e *engine) mode(ctx context.Context, s *step, req *admissionv1.AdmissionRequest) webhookconf.Mode {
	mode, err := e.Modes.Choose(ctx, s.Name, req)
	if err != nil {
		return ""
	}
	return webhookconf.Mode(mode.String())
}

// request returns the request for an operation on an object.
func (o *object) request(operation admissionv1.Operation) *admissionv1.AdmissionRequest {
	kind := metav1.GroupVersionKind{Group: o.kind.Group, Version: o.kind.Version, Kind: o.kind.Kind}
	resource := metav1.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}
	req := &admissionv1.AdmissionRequest{
		Kind: kind, RequestKind: new(kind), Resource: resource, RequestResource: new(resource),
		Name: o.head.Metadata.Name, Namespace: o.head.Metadata.Namespace, Operation: operation,
		Object: runtime.RawExtension{Raw: o.created}, DryRun: new(true),
		Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`)},
	}
	if o.Group == "" && o.isNamespaces() {
		req.Namespace = req.Name // as in an API server
	}
	if operation == admissionv1.Update {
		req.Object.Raw, req.OldObject.Raw = o.updated, o.stored
		req.Options.Raw = []byte(`{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`)
	}
	return req
}

// notCreated lists the members of metadata that the API server sets when an object is created.
var notCreated = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
	"managedFields", "selfLink",
}

// texts returns an object of a list with its type, and as it would be sent to be created again: without what the cluster has
// added. A text that is no object stays as it is: the steps' own decoders return the error.
func (r resource) texts(raw []byte) (stored, created []byte) {
	var members, metadata map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return raw, raw
	}
	apiVersion, kind := r.kind.ToAPIVersionAndKind()
	for name, value := range map[string]string{"apiVersion": apiVersion, "kind": kind} { // built-in lists leave them out
		if was := string(members[name]); was == "" || was == "null" || was == `""` {
			members[name] = strconv.AppendQuote(nil, value)
		}
	}
	stored = join(members)
	delete(members, "status")
	if json.Unmarshal(members["metadata"], &metadata) == nil && metadata != nil {
		maps.DeleteFunc(metadata, func(name string, _ json.RawMessage) bool { return slices.Contains(notCreated, name) })
		members["metadata"] = join(metadata)
	}
	return stored, join(members)
}

// join returns an object with these members, in the order of their names. Their texts stay as they are.
func join(members map[string]json.RawMessage) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(members) // they were read, so they are JSON
	return bytes.TrimSpace(text.Bytes())
}

// ask plays a step on a request. For the 1st, 2nd, 4th, 8th ... answer of a kind it asks as all users. If their answers
// differ, that is the answer. The verdict is that for the first user.
func (e *engine) ask(ctx context.Context, s *step, req *admissionv1.AdmissionRequest) (Verdict, answer, error) {
	verdict, err := e.play(ctx, s, req, 0)
	a := answerOf(verdict)
	s.told[a.Result]++
	if n := s.told[a.Result]; err != nil || a.Result == Failed || n&(n-1) != 0 {
		return verdict, a, err
	}
	for user := 1; user < len(e.users); user++ {
		other, err := e.play(ctx, s, req, user)
		switch {
		case err != nil || other.Err != nil:
			return verdict, answerOf(other), err
		case alike(verdict, other):
			continue
		}
		const message = "its result depends on the user who sends a request, and an audit has no user, or it differs from run to run; set Settings.DependsOnUser to leave the step out, or make it deterministic"
		return verdict, answer{Finding: Finding{Result: Unknown, Message: message}}, nil
	}
	return verdict, a, nil
}

// play plays a step on a request. It then waits as long as the requests that the step has sent meanwhile need at the
// rate for them.
func (e *engine) play(ctx context.Context, s *step, req *admissionv1.AdmissionRequest, user int) (Verdict, error) {
	var sent atomic.Int64
	of, counts := *req, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }}
	of.UID, of.UserInfo = uuid.NewUUID(), e.users[user]
	verdict := s.player.Play(httptrace.WithClientTrace(ctx, counts), &of)
	if ctx.Err() != nil {
		return verdict, context.Cause(ctx)
	}
	if n := sent.Load(); n > 0 {
		return verdict, e.pause(ctx, time.Duration(float64(n)/e.RequestsPerSecond*float64(time.Second)))
	}
	return verdict, nil
}

// Player plays one step as a server would run it: same decoder, same deadline, same patch. The step's mode and
// failurePolicy do not apply, and no metric counts. It is safe for concurrent use.
type Player struct {
	chain   *chain.Chain
	timeout time.Duration
	runner  chain.Runner
}

// NewPlayer returns a Player of a step. Without a Timeout, a run of the step can take ten seconds.
func NewPlayer(s chain.Step, log logr.Logger) *Player {
	s.Mode, s.Ignore, s.Lenient = chain.ModeDeny, false, true
	s.Timeout = cmp.Or(s.Timeout, chain.DefaultTimeout)
	validating := !s.Mutates && s.Handle == nil
	uncounted, _ := chain.NewMetrics(nil) // cannot fail without a registerer
	return &Player{
		chain:   chain.New(s.Name, chain.Config{Steps: []chain.Step{s}, Validating: validating}, uncounted, nil),
		timeout: s.Timeout, runner: chain.Runner{Log: log, Objects: chain.NewBudget()},
	}
}

// makers are users as the controllers of Kubernetes and kubelets have them.
var makers = []string{"system:kube-controller-manager", "system:node:"}

// Wants reports whether the step's own rules and selectors select a request, and the step does not leave its object
// alone. What can be of a controller of Kubernetes, or of a kubelet, counts as that.
func (p *Player) Wants(req *admissionv1.AdmissionRequest) bool {
	return !slices.ContainsFunc(makers, func(maker string) bool {
		by := *req
		_, wanted := p.chain.Select(&by, func() { by.UserInfo.Username = maker })
		return !wanted
	})
}

// Play runs the step on a request that it wants, within its timeout. The request's objects must not change afterwards,
// because a step that ignores its deadline can still read them.
func (p *Player) Play(ctx context.Context, req *admissionv1.AdmissionRequest) Verdict {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	wants, _ := p.chain.Select(req, func() {})
	o := p.runner.Run(ctx, p.chain, req, wants)
	switch {
	case o.Err != nil:
		return Verdict{Err: errors.Unwrap(o.Err)} // without the name of the step, which the caller knows
	case o.Response.Allowed:
		return Verdict{Patch: o.Response.Patch}
	}
	return Verdict{Denied: o.Response.Result}
}

// Verdict is the result of a step for one request. The zero Verdict admits the object unchanged.
type Verdict struct {
	Denied *metav1.Status // nil unless the step denies the object
	Err    error          // the failure of the step, which can be a hang.PanicError or wrap chain.ErrUnreadable; nil if it decided
	Patch  []byte         // a JSON patch; nil if the step changes nothing
}

// Changed returns the object as the step has changed it.
func (v Verdict) Changed(raw []byte) ([]byte, error) {
	if v.Patch == nil {
		return raw, nil
	}
	changed, _, err := patch.Apply(raw, v.Patch)
	return changed, err
}

// alike reports whether two verdicts are the same. The texts of failures often differ, as in the port of a connection.
func alike(a, b Verdict) bool {
	switch {
	case a.Err != nil || b.Err != nil:
		return (a.Err != nil) == (b.Err != nil) && isPanic(a.Err) == isPanic(b.Err)
	case a.Denied != nil || b.Denied != nil:
		return a.Denied != nil && b.Denied != nil && a.Denied.Message == b.Denied.Message
	}
	return bytes.Equal(a.Patch, b.Patch)
}

func isPanic(err error) bool {
	_, ok := errors.AsType[*hang.PanicError](err)
	return ok
}

// answerOf returns the answer that a verdict means.
func answerOf(v Verdict) answer {
	panicked, isPanic := errors.AsType[*hang.PanicError](v.Err)
	switch {
	case isPanic:
		message := fmt.Sprintf("it panicked: %s. Later panics of the step are only counted", shortened(fmt.Sprint(panicked.Value)))
		return answer{Finding: Finding{Result: Failed, Message: message}, gap: true, stack: panicked.Stack}
	case errors.Is(v.Err, chain.ErrUnreadable):
		return answer{Finding: Finding{Result: Failed, Message: unreadable(v.Err)}}
	case v.Err != nil:
		return answer{Finding: Finding{Result: Failed, Message: shortened(v.Err.Error())}, gap: true}
	case v.Denied != nil:
		return answer{Finding: Finding{Result: Denied, Message: v.Denied.Message}}
	case v.Patch == nil:
		return answer{Finding: Finding{Result: Passed}}
	}
	a := answer{Finding: Finding{Result: Drift, Paths: chain.Paths(v.Patch), Message: "it would change the object"}}
	if more := len(a.Paths) - maxPaths; more > 0 {
		a.Paths = a.Paths[:maxPaths]
		a.Message = fmt.Sprintf("it would change the object, in %d more paths than these", more)
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

func shortened(text string) string { return lograte.Brief(text, maxText) }
