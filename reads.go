package eirinix

// This file declares what steps look at beside the object of the request.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/rights"
)

// Read declares objects that a step looks at: an element of Settings.Reads. The program lists and watches them, keeps
// them in memory, and serves them through Call.Reader. It needs the rights to get, list and watch them, which
// manifests.Of grants and a start checks.
//
// Steps whose Reads select the same objects share one watch. Those without Transform and Index share the memory too, and so
// do steps that have the same slice of Reads.
type Read struct {
	// Object is of the kind to look at: a pointer to an empty object of the Manager's scheme, or an
	// *unstructured.Unstructured or *metav1.PartialObjectMetadata with apiVersion and kind. The Reader serves objects of
	// this Go type, and of no other.
	Object client.Object

	// Namespaces are the namespaces of the objects. Empty means all. Each costs a watch, and a Role instead of a
	// ClusterRole.
	Namespaces []string

	// Labels and Fields select among the objects. The API server evaluates them, so what they leave out costs nothing. A
	// field selector for metadata.name restricts the rights to that name. As in the API, no selector and an empty one
	// select all.
	Labels *metav1.LabelSelector
	Fields fields.Selector

	// Transform removes the parts of an object that the step does not need, before it is stored. It gets an object of its
	// own, and can assign a new one. The name, the namespace, the labels, and the absence of managedFields stay. Transform
	// runs for each object that arrives, must be fast, and must depend on the object alone. nil keeps everything.
	Transform func(client.Object)

	// Index has functions by name, which return the values under which a lookup with client.MatchingFields finds an
	// object. They get the object that Transform has left, and must not change it.
	Index map[string]client.IndexerFunc

	// MaxStale is how old the objects can be before the step fails, so that failurePolicy decides. 0 means one minute,
	// and AnyAge that objects of any age will do. Less than a minute is refused, because a connection can be dead for 45
	// s before client-go notices. The age counts from the last sign of life of the watch.
	MaxStale time.Duration

	// Required makes the step fail while there is no such object at all, and holds back its first registration. It is for
	// objects without which the step must not admit anything, such as a ConfigMap of settings.
	Required bool

	within time.Duration // in specs, in place of MaxStale
}

// AnyAge is a Read.MaxStale that objects of any age meet.
const AnyAge time.Duration = -1

// leastMaxStale is the shortest Read.MaxStale that can be kept, and the default.
const leastMaxStale = time.Minute

// Reader returns a reader of the objects that the step declares in Settings.Reads. It answers from memory, and never
// asks the API server.
//
// All that the steps of one call read is of one moment for each declaration: lists and gets agree. Objects of two
// declarations can be from different moments, some milliseconds apart, because their watches are two streams.
//
// Get and List return copies, which the step can change. A missing object is an error of apierrors.IsNotFound. An object
// that the declaration does not select is missing too. List knows client.InNamespace, client.MatchingLabels and other
// selectors of labels, client.MatchingFields with an index of Read.Index, and client.Limit. Without a namespace it
// returns all declared objects.
//
// All other errors fail the step, even if it drops them: a kind, namespace or index that is not declared, objects that
// are older than Read.MaxStale, and a Required object that is missing. A step that finds its objects too old makes the
// program ask for them again, and waits up to a second for that, unless the last attempt shows that it gains nothing.
//
// The Reader is safe for concurrent use, until the step returns. The Reader of a Call that a unit test constructs knows
// no objects; use a Harness.
func (c *Call) Reader() client.Reader { return c.reads.Reader() }

// newReads returns the Set of the steps' declarations.
func (r resolver) newReads(definitions []definition, log logr.Logger, metrics *reads.Metrics) (*reads.Set, error) {
	var steps []reads.Step
	for _, d := range definitions {
		if len(d.settings.Reads) == 0 {
			continue
		}
		step := reads.Step{Name: d.name}
		for i := range d.settings.Reads {
			declared, err := r.declaration(&d.settings.Reads[i])
			if err != nil {
				return nil, fmt.Errorf("eirinix: step %q: %w", d.name, err)
			}
			step.Reads = append(step.Reads, declared)
		}
		steps = append(steps, step)
	}
	return reads.New(r.scheme, steps, log, metrics)
}

// declaration returns a Read with its defaults resolved.
func (r resolver) declaration(read *Read) (reads.Declaration, error) {
	kind, err := reads.KindOf(read.Object, r.scheme)
	selected, notLabels := reads.SelectorOf(read.Labels)
	return reads.Declaration{
		Object: read.Object, Kind: kind, Namespaces: read.Namespaces, Labels: selected, Fields: read.Fields, Transform: read.Transform, Index: read.Index,
		MaxStale: max(cmp.Or(read.within, read.MaxStale, leastMaxStale), 0), Required: read.Required, Same: read,
	}, errors.Join(err, notLabels)
}

// checkReads returns all errors in the Reads of a step.
func (r resolver) checkReads(d definition) error {
	var errs []error
	if len(d.settings.Reads) > 0 && d.extension != nil {
		errs = append(errs, fmt.Errorf("eirinix: step %q has Settings.Reads, but gets no Call to read with; make it a Mutation or a Validation", d.name))
	}
	for i := range d.settings.Reads {
		read, at := &d.settings.Reads[i], fmt.Sprintf("eirinix: step %q: Settings.Reads[%d]", d.name, i)
		if isNil(read.Object) {
			errs = append(errs, fmt.Errorf("%s.Object is nil; set it to an empty object of the kind to look at, such as &corev1.ConfigMap{}", at))
			continue
		}
		if read.MaxStale != AnyAge && read.MaxStale != 0 && read.MaxStale < leastMaxStale {
			errs = append(errs, fmt.Errorf("%s.MaxStale is %s, which cannot be kept, because a connection can be dead for 45 s before that shows; give at least %s, or AnyAge", at, read.MaxStale, leastMaxStale))
		}
		declared, err := r.declaration(read)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at, err))
		}
		for _, problem := range declared.Problems(r.scheme) {
			errs = append(errs, fmt.Errorf("%s%w", at, problem))
		}
	}
	return errors.Join(errs...)
}

// readRights returns the objects that the steps look at, for the rights on them. Its error is about those that the mapper
// does not know, which are left out.
func (o ManagerOptions) readRights(definitions []definition, mapper meta.RESTMapper) (all []rights.Read, _ error) {
	var errs []error
	r := newResolver(o, resources.Cluster{})
	for _, d := range definitions {
		for i := range d.settings.Reads {
			declared, err := r.declaration(&d.settings.Reads[i])
			if err != nil {
				errs = append(errs, fmt.Errorf("eirinix: step %q: Settings.Reads[%d]: %w", d.name, i, err))
				continue
			}
			of, err := declared.Rights(mapper)
			if err != nil {
				errs = append(errs, fmt.Errorf("eirinix: step %q: Settings.Reads[%d]%w", d.name, i, err))
			}
			all = append(all, of...)
		}
	}
	return all, errors.Join(errs...)
}

// followReads begins to follow what the steps read.
func (r *run) followReads(p *program) error {
	given := r.m.given()
	resolver := newResolver(given.options, resources.Cluster{})
	var err error
	if p.reads, err = resolver.newReads(given.steps, r.log, newMetrics(reads.NewMetrics, "the metrics of objects that steps read", r.log)); err != nil || p.reads.Empty() {
		return err
	}
	c, err := given.readsClient(p.reads)
	if err != nil {
		return err
	}
	p.reads.Regained = p.objects.Retry
	r.tasks.Go(func() { p.reads.Run(r.background, c) })
	return nil
}

// awaitReads returns once what the steps read has been listed, or shows that it cannot be soon. The port is open by
// then, because an API server may need a conversion of this program for the list.
func (r *run) awaitReads(ctx context.Context, p *program) error {
	if !p.reads.Empty() {
		r.m.readiness.Lack(errors.New("waiting for the objects that steps read"))
		p.reads.Settled(ctx)
	}
	return r.resolve(ctx, p)
}

// reading returns what the steps of a running program read from.
func (p *program) reading() reading {
	if p.reads == nil {
		return nil
	}
	return p.reads
}

// holdingBack returns what steps wait for before they are registered. A process that does not register serves all steps
// at once, because another process has registered them: what cannot be read fails.
func (p *program) holdingBack() reading {
	if !*p.m.GetManagerOptions().RegisterWebHook {
		return nil
	}
	return p.reading()
}

// unfollowed says which steps wait in a process that follows no objects: while the cluster does not serve a kind
// that the step reads.
type unfollowed struct {
	reading // nil, because no call is answered here
	waiting map[string]error
}

// newUnfollowed asks the cluster for the kinds that the steps read.
func (s setup) newUnfollowed() (reading, error) {
	mapper, err := s.restMapper()
	if err != nil {
		return nil, err
	}
	u := unfollowed{waiting: map[string]error{}}
	for _, d := range s.steps {
		if _, err := s.options.readRights([]definition{d}, mapper); err != nil {
			u.waiting[d.name] = err
		}
	}
	return u, nil
}

func (u unfollowed) Waiting(step string) error { return u.waiting[step] }

// readsClient returns the client with which the objects of steps are followed.
func (s setup) readsClient(set *reads.Set) (client.WithWatch, error) {
	mapper, err := s.restMapper()
	if err != nil {
		return nil, err
	}
	config, err := s.kubeConnection()
	if err != nil {
		return nil, err
	}
	return set.Client(config, mapper)
}
