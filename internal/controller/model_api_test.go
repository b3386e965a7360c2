package controller_test

// This file is the models' API server: objects with all their versions, each guarded by its resourceVersion, and the
// copies of them that a process keeps by watches. Reads are of the latest version, as those of etcd are. Watches deliver
// late, each in an order of its own, and never out of order.

import (
	"context"
	"encoding/base64"
	"fmt"
	"reflect"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	namespace   = "eirinix"
	fingerprint = "eirini-x"
	secretName  = "eirini-x-setupcertificate" //nolint:gosec // the name of one
	leaseName   = "eirini-x-versions"
)

// stored is a version of an object; its object is nil when it was deleted, or does not exist yet.
type stored struct {
	object  client.Object
	version int
	at      time.Time
	fault   bool // not written by a process
}

type object struct {
	kind string
	name string
	past []stored
}

func (o *object) String() string { return o.kind }

func kindOf(object client.Object) string {
	if kind := object.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return reflect.TypeOf(object).Elem().Name()
}

func (o *object) latest() stored {
	if len(o.past) == 0 {
		return stored{}
	}
	return o.past[len(o.past)-1]
}

// heldAt is every version by which some API server may call at that moment: the latest, and any that was the latest
// within lag. That is the worst that any number of API servers with watches of their own can do.
func (o *object) heldAt(now time.Time, lag time.Duration) []stored {
	first := len(o.past) - 1
	for first > 0 && now.Sub(o.past[first].at) < lag {
		first--
	}
	return o.past[max(0, first):]
}

func (o *object) notFound() error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: o.String()}, o.name)
}

// object returns the object of that kind and name.
func (w *world) object(like client.Object) *object {
	kind, name := kindOf(like), like.GetName()
	for _, o := range w.objects {
		if o.kind == kind && o.name == name {
			return o
		}
	}
	o := &object{kind: kind, name: name}
	w.objects = append(w.objects, o)
	return o
}

// put makes a version the latest one; nil deletes.
func (w *world) put(o *object, next client.Object, fault bool) {
	w.versions++
	if next != nil {
		next.SetResourceVersion(strconv.Itoa(w.versions))
		if next.GetUID() == "" {
			w.made++
			next.SetUID(types.UID(fmt.Sprint("uid-", w.made)))
		}
	}
	w.becomes(o, stored{object: next, version: w.versions, at: w.now, fault: fault})
}

// becomes makes a version the latest one, which all watches are to deliver.
func (w *world) becomes(o *object, next stored) {
	o.past = append(o.past, next)
	for _, p := range w.processes {
		if v := p.views[o]; v != nil {
			v.expect(p, w.now)
		}
	}
}

// view is a process's copy of an object.
type view struct {
	at   int         // the version that the watch has delivered last; -1 for none
	news []time.Time // when the next ones come
	poll *time.Time  // when it is read next; nil if it is watched
}

// maxPoll is the longest time from one read of an object to the next that may not be watched.
const maxPoll = 36 * time.Second

// expect has the watch deliver one more version.
func (v *view) expect(p *process, since time.Time) {
	at := since.Add(min(p.w.delay(), p.w.longest/2))
	if v.poll != nil {
		if !v.poll.After(p.w.now) {
			*v.poll = p.w.now.Add(time.Duration(p.w.rng.Int64N(int64(maxPoll))))
		}
		at = *v.poll
	}
	if at.Before(p.back) {
		at = p.back.Add(time.Duration(p.w.rng.Int64N(int64(3 * time.Second))))
	}
	if n := len(v.news); n > 0 && v.news[n-1].After(at) {
		at = v.news[n-1]
	}
	if at.Before(p.w.now) {
		at = p.w.now
	}
	v.news = append(v.news, at)
	if p.newsAt.IsZero() || at.Before(p.newsAt) {
		p.newsAt = at
	}
}

// list begins the watches of a process. The API server's answer to that may be late too.
func (p *process) list() {
	p.views = map[*object]*view{}
	for _, o := range p.w.objects {
		v := &view{at: len(o.past) - 1}
		if p.polls && o.kind == "Lease" {
			v.poll = &time.Time{}
		}
		late := p.w.now.Add(-min(p.w.delay(), p.w.longest/2))
		for v.at >= 0 && o.past[v.at].at.After(late) {
			v.at--
		}
		for i := v.at + 1; i < len(o.past); i++ {
			v.expect(p, o.past[i].at)
		}
		p.views[o] = v
	}
}

// hear handles the events that watches have delivered.
func (p *process) hear() {
	p.newsAt = time.Time{}
	for _, o := range p.w.objects {
		v := p.views[o]
		for len(v.news) > 0 && !v.news[0].After(p.w.now) {
			v.news = v.news[1:]
			v.at++
		}
		if len(v.news) > 0 && (p.newsAt.IsZero() || v.news[0].Before(p.newsAt)) {
			p.newsAt = v.news[0]
		}
	}
	p.poke()
}

// copied is the process's copy of an object.
func (p *process) copied(o *object) (last stored, index int) {
	if index = p.views[o].at; index < 0 {
		return stored{}, index
	}
	return o.past[index], index
}

// copies are a process's copies of all objects. It implements cluster.Cache.
type copies struct {
	*process
	change func(client.Object) // of the returned object
	direct bool                // it keeps no copies: each read is a request of its own
	unsaid bool                // it does not say that it polls
	blind  *bool               // it may not read the Lease
}

var _ cluster.Cache = copies{}

func (c copies) Get(_ context.Context, into client.Object) error {
	o := c.w.object(into)
	last := o.latest()
	if c.blind != nil && *c.blind && into.GetName() == leaseName {
		return cluster.ErrUnseen
	}
	if !c.direct {
		last, _ = c.copied(o)
	} else if c.w.now.Before(c.back) {
		return apierrors.NewServiceUnavailable("model")
	}
	if last.object == nil {
		return o.notFound()
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(last.object.DeepCopyObject()).Elem())
	if c.change != nil {
		c.change(into)
	}
	return nil
}

// Answered has an object that is polled read at once.
func (c copies) Answered(object client.Object) {
	v := c.views[c.w.object(object)]
	if v == nil || v.poll == nil || c.w.now.Before(c.back) {
		return
	}
	*v.poll = c.w.now.Add(c.w.short())
	for i := range v.news {
		v.news[i] = *v.poll
	}
	if len(v.news) > 0 {
		c.newsAt = *v.poll
	}
}

func (c copies) Polls(object client.Object) bool {
	v := c.views[c.w.object(object)]
	return v != nil && v.poll != nil && !c.unsaid
}

// request is a moment at which others may act. The API server may fail to answer, and a pass may last too long for it.
func (p *process) request(deed string) error {
	if err := p.act(deed); err != nil {
		return err
	}
	if !p.until.IsZero() && p.w.now.After(p.until) {
		p.w.note(p, deed+": too late")
		return context.DeadlineExceeded
	}
	if p.w.now.Before(p.back) || p.w.chance(p.w.flaky) {
		p.w.note(p, deed+": no connection")
		return apierrors.NewServiceUnavailable("model")
	}
	return nil
}

// answer may get lost although the request was served.
func (p *process) answer() error {
	if p.w.chance(p.w.flaky) {
		p.w.note(p, "that answer gets lost")
		return apierrors.NewTimeoutError("model", 0)
	}
	return nil
}

// requests are those about the objects of one kind.
type requests[T client.Object] struct {
	p      *process
	of     func(name string) T
	before func(*object) // each Get
	change func(T)       // of the result of Get
}

func (r requests[T]) object(name string) *object { return r.p.w.object(r.of(name)) }

func (r requests[T]) Get(_ context.Context, name string, _ metav1.GetOptions) (T, error) {
	var none T
	o := r.object(name)
	if r.before != nil {
		r.before(o)
	}
	if err := r.p.request("reads the " + o.String()); err != nil {
		return none, err
	}
	last := o.latest()
	if last.object == nil {
		return none, o.notFound()
	}
	found := last.object.DeepCopyObject().(T)
	if r.change != nil {
		r.change(found)
	}
	return found, nil
}

func (r requests[T]) Create(_ context.Context, object T, _ metav1.CreateOptions) (T, error) {
	return r.write("creates", object, func(last client.Object) error {
		if last != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: r.object(object.GetName()).String()}, object.GetName())
		}
		return nil
	})
}

func (r requests[T]) Update(_ context.Context, object T, _ metav1.UpdateOptions) (T, error) {
	return r.write("updates", object, func(last client.Object) error {
		o := r.object(object.GetName())
		switch {
		case last == nil:
			return o.notFound()
		case last.GetResourceVersion() != object.GetResourceVersion() || last.GetUID() != object.GetUID():
			return apierrors.NewConflict(schema.GroupResource{Resource: o.String()}, o.name, nil)
		}
		return nil
	})
}

func (r requests[T]) write(verb string, object T, refused func(last client.Object) error) (T, error) {
	var none T
	w, o := r.p.w, r.object(object.GetName())
	if err := r.p.request(verb + " the " + o.String()); err != nil {
		return none, err
	}
	last := o.latest()
	if err := refused(last.object); err != nil {
		w.note(r.p, "loses the race for the "+o.String())
		return none, err
	}
	if last.object != nil && equality.Semantic.DeepEqual(last.object, object) {
		return object.DeepCopyObject().(T), r.p.answer() // a version is not counted up for nothing
	}
	next := object.DeepCopyObject().(T)
	w.put(o, next, false)
	w.writes++
	w.wrote(r.p, o, last)
	if err := r.p.answer(); err != nil {
		return none, err
	}
	return next.DeepCopyObject().(T), nil
}

// secretsOf is a process's connection for Secrets.
type secretsOf struct {
	corev1client.SecretInterface // nil: the methods below are all that is needed
	requests[*corev1.Secret]
}

func (s secretsOf) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error) {
	return s.requests.Get(ctx, name, o)
}

func (s secretsOf) Create(ctx context.Context, secret *corev1.Secret, o metav1.CreateOptions) (*corev1.Secret, error) {
	return s.requests.Create(ctx, secret, o)
}

func (s secretsOf) Update(ctx context.Context, secret *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error) {
	return s.requests.Update(ctx, secret, o)
}

func newSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func newTree(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func newLease(name string) *unstructured.Unstructured {
	return newTree("coordination.k8s.io/v1", "Lease", namespace, name)
}

// trees are a process's requests about untyped objects of one kind.
type trees struct {
	dynamic.NamespaceableResourceInterface // nil: the methods below are all that is needed
	requests[*unstructured.Unstructured]
}

func (t trees) Get(ctx context.Context, name string, o metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	return t.requests.Get(ctx, name, o)
}

func (t trees) Create(ctx context.Context, object *unstructured.Unstructured, o metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	return t.requests.Create(ctx, object, o)
}

func (t trees) Update(ctx context.Context, object *unstructured.Unstructured, o metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
	return t.requests.Update(ctx, object, o)
}

func (t trees) Delete(_ context.Context, name string, _ metav1.DeleteOptions, _ ...string) error {
	t.p.w.put(t.object(name), nil, false)
	return nil
}

func leaseOf(p *process) *rollout.Lease {
	client := trees{requests: requests[*unstructured.Unstructured]{p: p, of: newLease}}
	return &rollout.Lease{Client: client, Namespace: namespace, Name: leaseName}
}

// configurationsOf is a process's connection for webhook configurations. before is called before each is read, and change
// with the webhooks that were.
type configurationsOf struct {
	p      *process
	before func(*object)
	change func(client.Object)
}

func (c configurationsOf) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	kind := webhookconf.Mutating.Name
	if r.Resource == webhookconf.Validating.Resource {
		kind = webhookconf.Validating.Name
	}
	of := requests[*unstructured.Unstructured]{p: c.p, before: c.before, of: func(name string) *unstructured.Unstructured {
		return newTree("admissionregistration.k8s.io/v1", kind, "", name)
	}}
	if c.change != nil {
		of.change = func(object *unstructured.Unstructured) { c.change(object) }
	}
	return trees{requests: of}
}

func (c configurationsOf) all() []webhookconf.Configuration {
	return webhookconf.Configurations(c, webhookconf.Options{Fingerprint: fingerprint}, namespace+"/"+secretName)
}

// webhooks returns the webhooks of a configuration.
func webhooks(object client.Object) (all []map[string]any) {
	tree, ok := object.(*unstructured.Unstructured)
	if !ok || tree == nil {
		return nil
	}
	list, _ := tree.Object["webhooks"].([]any)
	for _, w := range list {
		all = append(all, w.(map[string]any))
	}
	return all
}

// clientConfig is the part of a webhook that holds the caBundle.
type clientConfig map[string]any

func clientConfigs(object client.Object) (all []clientConfig) {
	for _, w := range webhooks(object) {
		all = append(all, w["clientConfig"].(map[string]any))
	}
	return all
}

func (c clientConfig) bundle() []byte {
	text, _ := c["caBundle"].(string)
	return must(base64.StdEncoding.DecodeString(text))
}

func (c clientConfig) trust(bundle []byte) {
	c["caBundle"] = base64.StdEncoding.EncodeToString(bundle)
}

func (c clientConfig) path() string { return c["service"].(map[string]any)["path"].(string) }
