package eirinix

// This file changes the modes of steps by a ConfigMap while the program runs.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/modes"
)

// apiServerLag is the time that API servers are given to observe the registration of a step. They watch the same etcd, which
// takes milliseconds.
const apiServerLag = 2 * time.Second

// modesOf returns the ConfigMap of ManagerOptions.ModesConfigMap, of which only the namespace and the name are set. It returns nil
// if the program has none.
func (o ManagerOptions) modesOf(namespace string) *corev1.ConfigMap {
	if o.ModesConfigMap == "" {
		return nil
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.ModesConfigMap}}
}

// newModes returns the modes of the program's steps, before the ConfigMap of this namespace is read.
func (s setup) newModes(namespace string, log logr.Logger) *modes.Modes {
	o := s.options
	steps := make([]modes.Step, 0, len(s.steps))
	for _, d := range s.steps {
		steps = append(steps, modes.Step{Name: d.name, Mode: servedModes[d.settings.Mode], Fixed: d.settings.FixedMode})
	}
	made := modes.New(steps)
	made.Log, made.Lag = log, min(apiServerLag, o.retain()/10)
	if o.ModesConfigMap != "" {
		made.ConfigMap = namespace + "/" + o.ModesConfigMap
	}
	return made
}

// readModes reads the ConfigMap with the modes, and the steps that are registered as shadows.
func (p *program) readModes(ctx context.Context) error {
	shadows, unread := map[string]bool{}, false
	for _, conf := range p.configurations {
		found, err := conf.Read(ctx, p.cache.Get)
		unread = unread || err != nil // the controller reports it
		for _, name := range found.Shadows {
			shadows[name] = true
		}
	}
	p.modes.Registered(shadows, unread)
	from := p.m.GetManagerOptions().modesOf(p.namespace)
	if from == nil {
		return nil
	}
	return p.setModes(from, p.cache.Get(ctx, from))
}

// setModes puts the modes of the ConfigMap in force. err is the error of reading it.
func (p *program) setModes(from *corev1.ConfigMap, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		from = nil
	case err != nil:
		return fmt.Errorf("ConfigMap %s of ManagerOptions.ModesConfigMap: %w", p.modes.ConfigMap, err)
	}
	p.modes.Set(from)
	return nil
}

// firstModes is readModes for a start. If the cache has no copy of the ConfigMap, its error is the API server's.
func (p *program) firstModes(ctx context.Context) error {
	err := p.readModes(ctx)
	if !errors.Is(err, cluster.ErrUnseen) {
		return err
	}
	return p.setModes(p.clients.CoreV1().ConfigMaps(p.namespace).Get(ctx, p.m.GetManagerOptions().ModesConfigMap, metav1.GetOptions{}))
}

// followModes keeps the modes up to date.
func (r *run) followModes(p *program) {
	namespaces := cluster.NewNamespaces(r.background, p.dynamic)
	r.tasks.Go(func() {
		<-r.background.Done()
		namespaces.Wait()
	})
	p.modes.Labels = namespaces.Labels
	p.objects.Notify(func() {
		if err := p.readModes(r.background); err != nil && !errors.Is(err, cluster.ErrUnseen) {
			r.log.Error(err, "the modes cannot be read; the last ones stay in force")
		}
	})
}
