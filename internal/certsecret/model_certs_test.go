package certsecret_test

// What a replica of the model does with certificates and configurations: the rules of the root package's certificates
// and registration, in brief.

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// impatient makes the Store return where it would pause in real time before it tries again: the model repeats.
var impatient = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// repeats tells whether the Store would have tried again.
func repeats(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err)
}

// restore is certificates.reread. What has not changed since it was adopted gives what it gave.
func (r *replica) restore(known *certsecret.State) (*certsecret.State, error) {
	if known != nil && r.w.secret.secret != nil && r.w.secret.secret.ResourceVersion == known.ResourceVersion {
		_, err := r.store.Secrets.Get(impatient, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if secret := r.w.secret.secret; secret != nil && secret.ResourceVersion == known.ResourceVersion {
			return known, nil
		}
	}
	for {
		state, _, err := r.store.Restore(impatient, known)
		if !repeats(err) {
			return state, err
		}
	}
}

// adoptIfTrusted is that of the root package's certificates.
func (r *replica) adoptIfTrusted(state *certsecret.State, live []ca.Registered) error {
	authority, err := r.authority(state)
	if err != nil {
		return err
	}
	r.state = state
	r.mustLookBy = r.sawSecretAt.Add(r.w.looks)
	serves, now := r.serves.authority, r.now()
	if !r.w.broken.swapsFirst && !serves.Equal(authority) && serves.Usable(now) == nil {
		for _, l := range live {
			if serves.TrustedBy(l.Bundle, now) && !authority.TrustedBy(l.Bundle, now) {
				return nil
			}
		}
	}
	return r.use(authority)
}

func (r *replica) adopt(state *certsecret.State) error {
	authority, err := r.authority(state)
	if err != nil {
		return err
	}
	r.state = state
	r.mustLookBy = r.sawSecretAt.Add(r.w.looks)
	return r.use(authority)
}

// authority is the one to sign with.
func (r *replica) authority(state *certsecret.State) (*ca.Authority, error) {
	authority, err := r.current(state)
	if r.w.broken.swapsFirst && state.Phase == ca.Staged {
		for _, g := range state.Generations {
			if g.ID == state.NextID {
				authority, err = g.Authority()
			}
		}
	}
	if err == nil && r.w.broken.uncrossed {
		authority.Chain = nil
	}
	return authority, err
}

// current is state.Current, which is asked for again and again.
func (r *replica) current(state *certsecret.State) (*ca.Authority, error) {
	if r.of == state {
		return r.authorityOf, nil
	}
	authority, err := state.Current()
	if err == nil {
		r.of, r.authorityOf = state, authority
	}
	return authority, err
}

// use is serving.Leaf.Use.
func (r *replica) use(authority *ca.Authority) error {
	now := r.now()
	if r.serves != nil && r.serves.authority.Equal(authority) && now.Before(r.serves.renewAt) {
		return nil
	}
	certificate, err := authority.SignServing([]string{host}, r.w.leaves, now)
	if err != nil {
		return err
	}
	r.serves = &chain{
		authority: authority, leaf: certificate.Leaf, intermediates: authority.Chain,
		renewAt: ca.RenewAt(certificate.Leaf, r.w.rng.Float64()*2-1),
	}
	if !certificate.Leaf.NotAfter.Before(authority.Certificate.NotAfter) {
		r.serves.renewAt = certificate.Leaf.NotAfter
	}
	r.serves.label = r.w.trust.describe(authority)
	r.w.note(r, "serves a certificate of %s", r.serves)
	return nil
}

// becomeReady is registration.verify: once it is content, the replica is called.
func (r *replica) becomeReady(versions []version) {
	if r.ready {
		return
	}
	for _, v := range versions {
		if v.bundle == nil || r.w.trust.verify(r.serves, v.bundle, r.now()) != nil {
			return
		}
	}
	r.ready = true
	r.w.note(r, "is ready")
}

// write is registration.write.
func (r *replica) write(grows bool) error {
	r.writing = true
	defer func() { r.writing = false }()
	var registered []byte
	for _, c := range r.w.configurations {
		err := r.apply(c, grows, &registered)
		if err != nil {
			return err
		}
	}
	for {
		err := r.store.RecordRegistered(impatient, registered)
		if !repeats(err) {
			return err
		}
	}
}

// apply is webhookconf's Configuration.Apply, with registration.write's bundle.
func (r *replica) apply(c *configuration, grows bool, registered *[]byte) error {
	var err error
	for range 4 {
		var state *certsecret.State
		if r.w.broken.readsFirst {
			if state, err = r.store.Load(impatient); err != nil {
				return err
			}
		}
		var read version
		if read, err = r.readConfiguration(c); err != nil {
			return err
		}
		if !r.w.broken.readsFirst {
			if state, err = r.store.Load(impatient); err != nil {
				return err
			}
		}
		*registered = ca.Bundle(state.Bundle(), r.serves.authority.CertificatePEM)
		if (grows || state.Phase == ca.Staged) && read.bundle != nil {
			*registered = ca.Bundle(*registered, read.pem)
		}
		if read.bundle != nil && string(read.pem) == string(*registered) {
			return nil
		}
		if err = r.writeConfiguration(c, read, *registered); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}
