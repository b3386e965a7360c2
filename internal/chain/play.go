package chain

// This file plays a step in this process, on requests that no API server has sent.

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// Player plays one step as a Runner would run it: same decoder, same deadline, same patch. The step's mode and
// failurePolicy do not apply, and no metric counts. It is safe for concurrent use.
type Player struct {
	chain  *Chain
	runner Runner
}

// NewPlayer returns a Player of a step. Without a Timeout, a run of the step can take ten seconds.
func NewPlayer(s Step, log logr.Logger) *Player {
	s.Mode, s.Ignore = ModeDeny, false
	// A step with a timeout never gets the text of the request itself, which the caller uses again.
	s.Timeout = cmp.Or(s.Timeout, DefaultTimeout)
	validating := !s.Mutates && s.Handle == nil
	c := New(s.Name, Config{Steps: []Step{s}, Validating: validating}, unexposed(), nil)
	c.steps[0].strict = false
	return &Player{chain: c, runner: Runner{Log: log, Objects: NewBudget()}}
}

// Verdict is the result of a step for one request. The zero Verdict admits the object unchanged.
type Verdict struct {
	Denied *metav1.Status // nil unless the step denies the object
	Err    error          // the failure of the step, which can be a hang.PanicError or wrap ErrUnreadable; nil if it decided
	Patch  []byte         // a JSON patch; nil if the step changes nothing
}

// Wants reports whether the step's own rules and selectors select a request, and the step does not leave its object
// alone. What can be of a controller of Kubernetes, or of a kubelet, counts as that.
func (p *Player) Wants(req *admissionv1.AdmissionRequest) bool {
	m, by := p.chain.steps[0].Matcher, *req
	left := slices.ContainsFunc([]string{kubeControllers, kubelets}, func(maker string) bool {
		return m.leaves(&by, func() { by.UserInfo.Username = maker })
	})
	return m.Matches(req) && !left
}

// Play runs the step on a request that it wants, within its timeout. The request's objects must not change afterwards,
// because a step that ignores its deadline can still read them.
func (p *Player) Play(ctx context.Context, req *admissionv1.AdmissionRequest) Verdict {
	ctx, cancel := context.WithTimeout(ctx, p.chain.steps[0].Timeout)
	defer cancel()
	o := p.runner.Run(ctx, p.chain, req, Selection{wantKind | wantObject})
	v := Verdict{Err: o.Err}
	if failed, ok := errors.AsType[*stepError](o.Err); ok {
		v.Err = failed.err // the caller knows the step
	}
	switch {
	case o.Err != nil:
	case o.Response.Allowed:
		v.Patch = o.Response.Patch
	default:
		v.Denied = o.Response.Result
	}
	return v
}

// Changed returns the object as the step has changed it.
func (v Verdict) Changed(raw []byte) ([]byte, error) {
	if v.Patch == nil {
		return raw, nil
	}
	changed, _, err := patch.Apply(raw, v.Patch)
	return changed, err
}

// Paths returns the paths of the patch, in order and without values, because those can be secret.
func (v Verdict) Paths() []string { return pathsIn([][]byte{v.Patch}) }

// Matches reports whether the rules and the selectors select a request, as it would arrive.
func (m *Matcher) Matches(req *admissionv1.AdmissionRequest) bool {
	return m.matchesKind(req) && m.matchesObjects(req.Object.Raw, req.OldObject.Raw)
}
