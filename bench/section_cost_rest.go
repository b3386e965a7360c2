package main

// This file measures part rest of section cost: replicas in a cluster without events.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/manifests"
)

const (
	restBound = 60 // requests per replica and hour
	settling  = 30 * time.Second
)

// atRest counts the requests of idle replicas: of a whole program and of a serving half, each as an administrator and
// with the rights of its manifests. They run side by side, as separate programs.
func (b *costBench) atRest(ctx context.Context) (err error) {
	programs := []struct {
		name            string
		halved, limited bool
	}{
		{"whole program", false, false},
		{"whole program, rights of its manifests", false, true},
		{"serving half", true, false},
		{"serving half, rights of its manifests", true, true},
	}
	var replicas []*replica
	defer func() { err = errors.Join(err, endAll(replicas)) }()
	for i, p := range programs {
		r, err := b.atRestOne(ctx, fmt.Sprintf("cost-rest-%d", i), p.halved, p.limited)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		replicas = append(replicas, r)
	}
	if err := pause(ctx, settling); err != nil {
		return err
	}
	from := time.Now()
	if err := pause(ctx, b.rest); err != nil {
		return err
	}
	to := time.Now()
	hours := float64(time.Hour) / float64(to.Sub(from))
	b.title("Requests of one replica at rest, per hour, seen for %s", b.rest)
	b.line("%-36s %9s %9s %12s   %s", "", "requests", "refused", "no such", "at its start")
	for i, r := range replicas {
		t := tallyOf(from, to, r)
		of := func(status int) float64 {
			return float64(t.having(func(t *trip) bool { return t.status == status })) * hours
		}
		b.line("%-36s %9.1f %9.1f %12.1f   %d", programs[i].name, float64(len(t))*hours, of(http.StatusForbidden), of(http.StatusNotFound),
			len(tallyOf(time.Time{}, from, r)))
		t.kinds(b.report, hours)
	}
	for i, r := range replicas {
		b.judge(float64(len(tallyOf(from, to, r)))*hours, restBound, "requests per hour at rest, %s", programs[i].name)
	}
	return nil
}

// atRestOne starts one of the programs. For a serving half, another Manager registers the webhooks first.
func (b *costBench) atRestOne(ctx context.Context, name string, halved, limited bool) (*replica, error) {
	if err := b.namespaces(ctx, name); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	o := costOptions(name)
	o.Host, o.Port, o.ListenAddress = "127.0.0.1", int32(port), fmt.Sprintf(":%d", port)
	if halved {
		o.RegisterWebHook = new(false)
		m, err := newReplica(b.plane.Config(), o)
		if err == nil {
			err = m.RegisterExtensions()
		}
		if err != nil {
			return nil, err
		}
	}
	config := b.plane.Config()
	if limited {
		if config, err = b.account(ctx, o); err != nil {
			return nil, err
		}
	}
	return startReplica(ctx, config, o)
}

// account creates all objects that manifests.Of returns, and returns the configuration of the Deployment's
// ServiceAccount.
func (b *costBench) account(ctx context.Context, o eirinix.ManagerOptions) (*rest.Config, error) {
	m, err := newReplica(b.plane.Config(), o)
	if err != nil {
		return nil, err
	}
	objects, err := manifests.Of(m.ExtensionManager, manifests.Options{Image: "registry.example.org/bench:1"})
	if err != nil {
		return nil, err
	}
	account := ""
	for _, object := range objects {
		if d, ok := object.(*appsv1.Deployment); ok {
			account = d.Spec.Template.Spec.ServiceAccountName
		}
		if err := b.client.Create(ctx, object); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, 2*time.Second); err != nil { // the API server learns of new rights through a watch
		return nil, err
	}
	group := "system:serviceaccounts"
	return b.plane.User("system:serviceaccount:"+o.WebhookNamespace+":"+account, group, group+":"+o.WebhookNamespace)
}
