package eirinix

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// written is what came of a write.
type written struct {
	anything bool
	again    time.Time // when it is due again, where it was put off; zero where it was not
}

// write registers every step, with the CAs that must be trusted, and leaves word of that. keep picks from a caBundle that
// is registered what else is to stay: a process that has just started, or finds its CA missing, knows nothing of other
// replicas and what they serve. Steps that another version has registered may stay as they are.
func (r *registration) write(ctx context.Context, keep func(live []byte) []byte) (done written, err error) {
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
	case <-ctx.Done():
		return written{}, context.Cause(ctx)
	}
	if r.over.Load() {
		return written{}, nil
	}
	if r.grows {
		keep = everything
	}
	var registered []byte
	for _, c := range r.current() {
		// What must be trusted is read after the configuration, which is then replaced in the version that was read: a
		// replica that was slow cannot take back what a faster one has published or pruned.
		w, err := c.Register(ctx, func(live [][]byte) (bundle []byte, err error) {
			registered, err = r.certs.bundle(ctx, live, keep)
			for _, l := range live {
				if len(ca.SplitBundle(l)) > 0 && !ca.Contains(l, registered) {
					r.spread = time.Now().Add(r.lag)
				}
			}
			return registered, err
		})
		if apierrors.IsForbidden(err) && !c.Holds(r.entries) {
			continue // what we have nothing to do with, we need no right on
		}
		if err != nil {
			return done, err
		}
		switch w.Outcome {
		case webhookconf.Absent:
		case webhookconf.Deferred:
			done.again = soonest(done.again, w.At)
			r.log.Info("put off", "configuration", c.String(), "until", w.At.UTC().Format(time.RFC3339), "because", contested(w.Contest))
		default:
			done.anything = done.anything || w.Outcome == webhookconf.Created || w.Outcome == webhookconf.Updated
			r.log.Info("registered", "configuration", c.String(), "outcome", w.Outcome, "calls", r.options.Target.String(), "because", w.Reason)
		}
	}
	r.describe.Do(r.describeSteps)
	if registered == nil {
		return done, nil
	}
	return done, r.certs.record(ctx, registered)
}

// end has nothing written from now on, because what is registered is about to be removed; what is being written has been
// written when it returns, unless ctx ends before.
func (r *registration) end(ctx context.Context) {
	r.over.Store(true)
	select {
	case r.writing <- struct{}{}:
		<-r.writing
	case <-ctx.Done():
	}
}

// survey is what is registered.
type survey struct {
	live   []ca.Registered // the caBundles in force; an empty one for a configuration that lacks what we register
	unseen bool            // it may not be read here

	due    bool // something else than a caBundle is to be written
	reason string
	again  time.Time // when that is due, where it was put off, or may be

	yields   map[string]string               // to whom, by configuration
	contests map[string]*webhookconf.Contest // by configuration
}

// look reads what is registered, and decides whose steps are to stand there.
func (r *registration) look(ctx context.Context) (survey, error) {
	s := survey{yields: map[string]string{}, contests: map[string]*webhookconf.Contest{}}
	var passed []string
	unseen, err := r.each(ctx, func(c webhookconf.Registrar, live webhookconf.Standing) error {
		if live.Due {
			s.due, s.reason = true, fmt.Sprintf("%s: %s", c, live.Reason)
		}
		if (!live.Exists || len(live.Missing) > 0) && live.Due {
			s.live = append(s.live, ca.Registered{Name: c.String()})
		}
		for _, bundle := range live.Bundles {
			s.live = append(s.live, ca.Registered{Name: c.String(), Bundle: bundle})
		}
		s.again = soonest(s.again, live.At)
		passed = append(passed, live.Passed...)
		if live.Action == webhookconf.Yield {
			s.yields[c.String()] = live.Reason
		}
		if live.Contest != nil {
			s.contests[c.String()] = live.Contest
		}
		return nil
	})
	s.unseen = unseen
	if err == nil && !unseen && r.pass != nil {
		r.passOn(ctx, &s, passed)
	}
	return s, err
}

const (
	// askAgain is how soon it is looked again whether another version is reached.
	askAgain = 5 * time.Second

	// askTimes is how often the API server is made to call before nobody else is believed to be there: of three replicas
	// one is missed by that many calls at random once in ten million times.
	askTimes = 40
)

// passOn leaves the calls on these paths to replicas of the version that is registered, if there are any. Whoever has
// registered and cannot be reached, because it has died since or never got among the endpoints, must not stop all calls:
// then these steps are registered again. A version that gives way goes ahead when nobody is left to give way to.
func (r *registration) passOn(ctx context.Context, s *survey, paths []string) {
	r.mu.Lock()
	givesWay := !r.giveWayUntil.IsZero()
	s.again = soonest(s.again, r.giveWayUntil)
	r.mu.Unlock()
	if givesWay {
		paths = nil // it knows everything that the older version is asked for, or says that it does not
	}
	if len(paths) > 0 || givesWay {
		if r.canary.Alone(ctx, r.clients, askTimes) {
			w := r.writer
			w.Started = w.Now() // as far as calls go, it has started after whoever is not reached
			r.mu.Lock()
			r.configurations, r.giveWayUntil = w.Registrars(r.admissions, r.certs.owner()), time.Time{}
			r.mu.Unlock()
			s.due, s.reason, paths = true, "the API server reaches nobody who has the steps that are registered", nil
		}
		s.again = soonest(s.again, r.writer.Now().Add(askAgain))
	}
	r.pass(paths)
}

// giveWay leaves the steps of another version registered for a while, if replicas of it run: they must not be asked for
// what they do not know before this one can be asked, which is when it is ready and those who send calls know it.
func (r *registration) giveWay(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	other := false
	if _, err := r.each(ctx, func(_ webhookconf.Registrar, live webhookconf.Standing) error {
		other = other || live.Exists && live.Other
		return nil
	}); err != nil || !other {
		return // or it is said when it is written
	}
	who := r.canary.WhoAnswers(ctx, r.clients)
	if who == "" || who == r.canary.Instance {
		return
	}
	later := r.writer
	later.Started = time.Time{} // before everybody
	r.mu.Lock()
	r.configurations = later.Registrars(r.admissions, r.certs.owner())
	r.giveWayUntil = r.writer.Now().Add(d)
	r.mu.Unlock()
	r.log.Info("another version serves; its steps stay registered until this one is known to those who send calls", "answers", who, "for", d.String())
}

// current are the configurations as they are to be written now.
func (r *registration) current() []webhookconf.Registrar {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.giveWayUntil.IsZero() && !r.writer.Now().Before(r.giveWayUntil) {
		r.giveWayUntil = time.Time{}
		r.configurations = r.writer.Registrars(r.admissions, r.certs.owner())
	}
	return r.configurations
}

// contested tells who undoes what we write.
func contested(c *webhookconf.Contest) string {
	if c == nil {
		return "it was changed again and again"
	}
	by := ""
	if c.By != "" {
		by = fmt.Sprintf(" by %q", c.By)
	}
	return fmt.Sprintf("it was %s%s %d times, shortly after each repair; take it out of what that tool applies, or have it leave out webhooks", c.Harm, by, c.Times)
}

// each looks at every configuration. forbidden tells that those which hold steps of ours may not be read here.
func (r *registration) each(ctx context.Context, look func(webhookconf.Registrar, webhookconf.Standing) error) (forbidden bool, err error) {
	for _, c := range r.current() {
		// One without steps of ours may hold those of another version, which nobody else may be left to look after.
		live, err := c.Survey(ctx)
		if apierrors.IsForbidden(err) {
			if !c.Holds(r.entries) {
				continue
			}
			return true, nil
		}
		if err == nil {
			err = look(c, live)
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// verify tells what still keeps the API server from calling this process: nil means that every step is
// registered and that the certificate served here verifies against the caBundle that is in force.
func (r *registration) verify(ctx context.Context) error {
	forbidden, err := r.each(ctx, func(c webhookconf.Registrar, live webhookconf.Standing) error {
		switch {
		case !c.Holds(r.entries):
			return nil
		case !live.Exists:
			return fmt.Errorf("%s does not exist; call RegisterExtensions", c)
		case len(live.Missing) > 0:
			return fmt.Errorf("%s does not hold %s; call RegisterExtensions of this version", c, strings.Join(live.Missing, ", "))
		}
		for _, bundle := range live.Bundles {
			if err := r.certs.Verify(bundle); err != nil {
				return fmt.Errorf("%s holds another caBundle than the %s; call RegisterExtensions: %w", c, r.certs, err)
			}
		}
		return nil
	})
	if forbidden {
		return r.verifyRecorded(ctx)
	}
	return err
}

// describeSteps logs what will be sent to each step.
func (r *registration) describeSteps() {
	for _, e := range r.entries {
		names := make([]string, 0, len(e.Steps))
		for _, i := range e.Steps {
			names = append(names, r.steps[i].Name)
		}
		r.log.Info("called for", "webhook", e.Name, "extensions", strings.Join(names, ","), "rules", describeRules(e.Rules),
			"namespaces", r.describeNamespaces(e), "objects", metav1.FormatLabelSelector(e.Objects), "failurePolicy", e.FailurePolicy)
	}
}

func describeRules(rules []admissionregistrationv1.RuleWithOperations) string {
	var all []string
	for _, r := range rules {
		operations := make([]string, 0, len(r.Operations))
		for _, o := range r.Operations {
			operations = append(operations, string(o))
		}
		all = append(all, strings.Join(operations, ",")+" of "+strings.Join(r.Resources, ","))
	}
	return strings.Join(all, "; ")
}

func (r *registration) describeNamespaces(e webhookconf.Entry) string {
	switch {
	case e.Namespaces != nil && len(e.Namespaces.MatchLabels)+len(e.Namespaces.MatchExpressions) > 0:
		return metav1.FormatLabelSelector(e.Namespaces)
	case r.options.Namespace != "":
		return r.options.Namespace
	}
	return "all but the cluster's own"
}

func (r *registration) remove(ctx context.Context) error {
	for _, c := range r.current() {
		outcome, err := c.Delete(ctx)
		if apierrors.IsForbidden(err) && !c.Holds(r.entries) {
			continue
		}
		if err != nil {
			return err
		}
		if outcome != webhookconf.Absent {
			r.log.Info("unregistered", "configuration", c.String(), "outcome", outcome)
		}
	}
	return nil
}

// verifyRecorded goes by the word that RegisterExtensions left, for a serving half without the right to read webhook
// configurations.
func (r *registration) verifyRecorded(ctx context.Context) error {
	bundle, err := r.certs.recorded(ctx)
	if err != nil {
		return err
	}
	if err := r.certs.Verify(bundle); err != nil {
		return fmt.Errorf("what RegisterExtensions registered last is another caBundle than that of the %s; call it again: %w", r.certs, err)
	}
	return nil
}

// watches are the configurations that hold steps of ours.
func (r *registration) watches() (all []watched) {
	for _, c := range r.current() {
		if c.Holds(r.entries) {
			all = append(all, watched{c.String(), c.Watch})
		}
	}
	return all
}

// awaitRegistered returns when verify is content, but not before spread, and says meanwhile what it waits for.
func (r *registration) awaitRegistered(ctx context.Context, spread time.Time, waiting func(error)) error {
	said := reminder{log: r.log}
	for {
		err := r.verify(ctx)
		if err == nil {
			if left := time.Until(spread); left > 0 {
				return pause(ctx, left)
			}
			return nil
		}
		if owned, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err); ok {
			return owned
		}
		waiting(err)
		said.say("not ready: serving, but not registered", err)
		if err := pause(ctx, pollRegistration); err != nil {
			return err
		}
	}
}
