package controller_test

// This file is the models' API server: objects with all their versions, each guarded by its resourceVersion, and the
// copies of them that a process keeps by watches. Reads are of the latest version, as those of etcd are. Watches deliver
// late, each in an order of its own, and never out of order.

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
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
	kind reflect.Type
	name string
	past []stored
}

func (o *object) String() string { return o.kind.Elem().Name() }

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
	kind, name := reflect.TypeOf(like), like.GetName()
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
			next.SetUID(types.UID(fmt.Sprint("uid-", w.versions)))
		}
	}
	o.past = append(o.past, stored{object: next, version: w.versions, at: w.now, fault: fault})
	for _, p := range w.processes {
		if v := p.views[o]; v != nil {
			v.expect(p, w.now)
		}
	}
}

// view is a process's copy of an object.
type view struct {
	at   int         // the version that the watch has delivered last; -1 for none
	saw  int         // the one that the process has read or written itself last
	news []time.Time // when the next ones come
}

// expect has the watch deliver one more version.
func (v *view) expect(p *process, since time.Time) {
	at := since.Add(min(p.w.delay(), p.w.longest/2))
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
		v := &view{at: len(o.past) - 1, saw: -1}
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
	v := p.views[o]
	index = max(v.at, v.saw)
	if index < 0 {
		return stored{}, index
	}
	return o.past[index], index
}

// copies are a process's copies of all objects. It implements cluster.Cache.
type copies struct {
	*process
	change func(client.Object) // of the returned object
}

var _ cluster.Cache = copies{}

func (c copies) Get(_ context.Context, into client.Object) error {
	o := c.w.object(into)
	last, _ := c.copied(o)
	if last.object == nil {
		return o.notFound()
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(last.object.DeepCopyObject()).Elem())
	if c.change != nil {
		c.change(into)
	}
	return nil
}

func (c copies) Saw(object client.Object) {
	o := c.w.object(object)
	for i := len(o.past) - 1; i >= 0; i-- {
		if o.past[i].object != nil && o.past[i].object.GetResourceVersion() == object.GetResourceVersion() {
			c.views[o].saw = max(c.views[o].saw, i)
			return
		}
	}
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
	if p.w.chance(p.w.flaky) {
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

// secretsOf is a process's connection for Secrets. Like the one that is shipped, it has the cache take notice.
type secretsOf struct {
	corev1client.SecretInterface // nil: the methods below are all that is needed
	requests[*corev1.Secret]
}

func (s secretsOf) saw(secret *corev1.Secret, err error) (*corev1.Secret, error) {
	if err == nil {
		copies{process: s.p}.Saw(secret)
	}
	return secret, err
}

func (s secretsOf) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error) {
	return s.saw(s.requests.Get(ctx, name, o))
}

func (s secretsOf) Create(ctx context.Context, secret *corev1.Secret, o metav1.CreateOptions) (*corev1.Secret, error) {
	return s.saw(s.requests.Create(ctx, secret, o))
}

func (s secretsOf) Update(ctx context.Context, secret *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error) {
	return s.saw(s.requests.Update(ctx, secret, o))
}

func newSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func newLease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func newMutating(name string) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func newValidating(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func leasesOf(p *process) rollout.Leases {
	return requests[*coordinationv1.Lease]{p: p, of: newLease}
}

// configurationsOf is a process's connection for webhook configurations. before is called before each is read, and change
// with the webhooks that were.
type configurationsOf struct {
	admissionregistrationv1client.AdmissionregistrationV1Interface // nil, as those below
	p                                                              *process
	before                                                         func(*object)
	change                                                         func(client.Object)
}

type mutatingOf struct {
	admissionregistrationv1client.MutatingWebhookConfigurationInterface
	requests[*admissionregistrationv1.MutatingWebhookConfiguration]
}

func (m mutatingOf) Get(ctx context.Context, name string, o metav1.GetOptions) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return m.requests.Get(ctx, name, o)
}

func (m mutatingOf) Create(ctx context.Context, c *admissionregistrationv1.MutatingWebhookConfiguration, o metav1.CreateOptions) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return m.requests.Create(ctx, c, o)
}

func (m mutatingOf) Update(ctx context.Context, c *admissionregistrationv1.MutatingWebhookConfiguration, o metav1.UpdateOptions) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return m.requests.Update(ctx, c, o)
}

type validatingOf struct {
	admissionregistrationv1client.ValidatingWebhookConfigurationInterface
	requests[*admissionregistrationv1.ValidatingWebhookConfiguration]
}

func (v validatingOf) Get(ctx context.Context, name string, o metav1.GetOptions) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return v.requests.Get(ctx, name, o)
}

func (v validatingOf) Create(ctx context.Context, c *admissionregistrationv1.ValidatingWebhookConfiguration, o metav1.CreateOptions) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return v.requests.Create(ctx, c, o)
}

func (v validatingOf) Update(ctx context.Context, c *admissionregistrationv1.ValidatingWebhookConfiguration, o metav1.UpdateOptions) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return v.requests.Update(ctx, c, o)
}

func (c configurationsOf) MutatingWebhookConfigurations() admissionregistrationv1client.MutatingWebhookConfigurationInterface {
	r := requests[*admissionregistrationv1.MutatingWebhookConfiguration]{p: c.p, of: newMutating, before: c.before}
	if c.change != nil {
		r.change = func(m *admissionregistrationv1.MutatingWebhookConfiguration) { c.change(m) }
	}
	return mutatingOf{requests: r}
}

func (c configurationsOf) ValidatingWebhookConfigurations() admissionregistrationv1client.ValidatingWebhookConfigurationInterface {
	r := requests[*admissionregistrationv1.ValidatingWebhookConfiguration]{p: c.p, of: newValidating, before: c.before}
	if c.change != nil {
		r.change = func(v *admissionregistrationv1.ValidatingWebhookConfiguration) { c.change(v) }
	}
	return validatingOf{requests: r}
}

func (c configurationsOf) all() []webhookconf.Configuration {
	return webhookconf.Configurations(c, webhookconf.Options{Fingerprint: fingerprint}, namespace+"/"+secretName)
}

// clientConfigs returns the part of each webhook of a configuration that holds the caBundle.
func clientConfigs(object client.Object) (all []*admissionregistrationv1.WebhookClientConfig) {
	switch c := object.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	}
	return all
}
