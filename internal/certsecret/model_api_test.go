package certsecret_test

// What the model's API server keeps: the Secret and two webhook configurations, each guarded by its
// resourceVersion. Reads are of the latest version, as those of etcd are; what is stale is what a replica does with
// them. API servers call webhooks by older versions of a configuration (see configuration.heldAt).

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// version is one that a webhook configuration has or had.
type version struct {
	*bundle
	resourceVersion int
	endedAt         time.Time // zero for the latest one
	fault           bool      // not written by a replica
}

// configuration is a webhook configuration with the versions that may still be in use somewhere.
type configuration struct {
	name     string
	versions []version
}

func (c *configuration) latest() version {
	if len(c.versions) == 0 {
		return version{}
	}
	return c.versions[len(c.versions)-1]
}

// heldAt is every version by which some API server may call at that moment: the latest, and any that was the latest
// within lag. That is the worst that any number of API servers with informers of their own can do.
func (c *configuration) heldAt(now time.Time, lag time.Duration) []version {
	for len(c.versions) > 1 && now.Sub(c.versions[0].endedAt) > lag {
		c.versions = c.versions[1:]
	}
	return c.versions
}

func (c *configuration) put(b *bundle, now time.Time, fault bool) {
	next := version{bundle: b, resourceVersion: c.latest().resourceVersion + 1, fault: fault}
	if n := len(c.versions); n > 0 {
		c.versions[n-1].endedAt = now
	}
	c.versions = append(c.versions, next)
}

// memory is an API server's storage for one Secret.
type memory struct {
	secret  *corev1.Secret
	version int
	past    []map[string][]byte // of data that was written, for rolling back
}

func (m *memory) get() (*corev1.Secret, error) {
	if m.secret == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return m.secret.DeepCopy(), nil
}

func (m *memory) create(secret *corev1.Secret) (*corev1.Secret, error) {
	if m.secret != nil {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), name)
	}
	secret = secret.DeepCopy()
	secret.UID = types.UID(fmt.Sprint("uid-", m.version))
	m.put(secret)
	return secret.DeepCopy(), nil
}

func (m *memory) update(secret *corev1.Secret) (*corev1.Secret, error) {
	switch {
	case m.secret == nil:
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	case secret.ResourceVersion != m.secret.ResourceVersion:
		return nil, apierrors.NewConflict(corev1.Resource("secrets"), name, nil)
	}
	secret = secret.DeepCopy()
	m.put(secret)
	return secret.DeepCopy(), nil
}

func (m *memory) put(secret *corev1.Secret) {
	m.version++
	secret.ResourceVersion = strconv.Itoa(m.version)
	m.secret = secret
}

// remember keeps a copy for rolling back to.
func (m *memory) remember() {
	if m.secret != nil {
		m.past = append(m.past, m.secret.DeepCopy().Data)
		m.past = m.past[max(0, len(m.past)-20):]
	}
}

// secretClient is one replica's connection. Every request is an action of its own: others may act before it arrives.
type secretClient struct {
	corev1client.SecretInterface // nil: the Store needs no more than what follows
	r                            *replica
}

func (c secretClient) Get(context.Context, string, metav1.GetOptions) (*corev1.Secret, error) {
	if err := c.r.request("reads the Secret"); err != nil {
		return nil, err
	}
	c.r.sawSecretAt = c.r.w.now
	return c.r.w.secret.get()
}

func (c secretClient) Create(_ context.Context, secret *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	return c.write("creates", secret, c.r.w.secret.create)
}

func (c secretClient) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	return c.write("updates", secret, c.r.w.secret.update)
}

func (c secretClient) write(verb string, secret *corev1.Secret, do func(*corev1.Secret) (*corev1.Secret, error)) (*corev1.Secret, error) {
	if err := c.r.request(verb + " the Secret"); err != nil {
		return nil, err
	}
	w := c.r.w
	written, err := do(secret)
	if err != nil {
		w.note(c.r, "lost the race for the Secret")
		return nil, err
	}
	w.secret.remember()
	w.wroteSecret(c.r)
	return written, c.r.answer()
}

// readConfiguration gets a configuration.
func (r *replica) readConfiguration(c *configuration) (version, error) {
	if err := r.request("reads " + c.name); err != nil {
		return version{}, err
	}
	return c.latest(), nil
}

// writeConfiguration replaces the version that was read.
func (r *replica) writeConfiguration(c *configuration, read version, text []byte) error {
	if err := r.request("writes " + c.name); err != nil {
		return err
	}
	if c.latest().resourceVersion != read.resourceVersion {
		r.w.note(r, "lost the race for "+c.name)
		return apierrors.NewConflict(corev1.Resource(c.name), c.name, nil)
	}
	next := r.w.trust.bundle(text)
	r.w.onlyGrows(r, c, next)
	c.put(next, r.w.now, false)
	r.w.writes++
	r.w.note(r, c.name+" is now %s", next)
	r.w.changed()
	return r.answer()
}

var errCrashed = fmt.Errorf("the process has crashed")

// request is a moment at which others may act. The API server may fail to answer.
func (r *replica) request(what string) error {
	if err := r.act(what); err != nil {
		return err
	}
	if r.w.chance(r.w.flaky) {
		r.w.note(r, what+": no connection")
		return apierrors.NewServiceUnavailable("model")
	}
	return nil
}

// answer may get lost although the request was served.
func (r *replica) answer() error {
	if r.w.chance(r.w.flaky) {
		r.w.note(r, "that answer gets lost")
		return apierrors.NewTimeoutError("model", 0)
	}
	return nil
}

// live is a configuration as ca.WhatIsDue wants it.
func (v version) live(name string) ca.Registered {
	if v.bundle == nil {
		return ca.Registered{Name: name}
	}
	return ca.Registered{Name: name, Bundle: v.pem}
}
