package cluster

// This file makes the controller-runtime manager of programs that bring none.

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// NewKubeManager returns a controller-runtime manager. Its cache holds objects of the namespace alone, unless that is
// empty. ready is for its readiness probe.
func NewKubeManager(cfg *rest.Config, options manager.Options, namespace string, ready func() error) (manager.Manager, error) {
	// Two Managers in one process can have controllers of the same name.
	options.Controller = config.Controller{SkipNameValidation: new(true)}
	if namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	if _, unwatchable := cfg.Transport.(interface{ NoWatches() }); unwatchable { // an in-memory API, of a test or a preview
		options.NewClient = func(config *rest.Config, o client.Options) (client.Client, error) {
			o.Cache = nil
			return client.New(config, o)
		}
	}
	mgr, err := manager.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("eirinix: cannot make the controller-runtime manager: %w", err)
	}
	if err := errors.Join(
		mgr.AddHealthzCheck("eirinix", healthz.Ping),
		mgr.AddReadyzCheck("eirinix", func(*http.Request) error { return ready() }),
	); err != nil {
		return nil, fmt.Errorf("eirinix: cannot add health checks to the controller-runtime manager: %w", err)
	}
	return mgr, nil
}

// Calm returns a core for the log of a controller-runtime manager.
func Calm(c zapcore.Core) zapcore.Core { return calm{c} }

// calm is a core for controller-runtime's manager. The lines with which it stops are of level Debug: there are many of
// them, before each error of Start.
type calm struct{ zapcore.Core }

func (c calm) With(fields []zapcore.Field) zapcore.Core { return calm{c.Core.With(fields)} }

func (c calm) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.HasPrefix(entry.Message, "Stopping and waiting for ") || strings.HasPrefix(entry.Message, "Wait completed, ") {
		entry.Level = zapcore.DebugLevel
	}
	return c.Core.Check(entry, checked)
}

var processLogger sync.Once // SetLogger is not safe for Managers that start at the same time

// SetProcessLogger sets the logger of controller-runtime's packages, unless the program has set one. It is one for the
// whole process. Without it, those packages log a complaint with a stack trace. The first call wins.
func SetProcessLogger(log logr.Logger) {
	processLogger.Do(func() { logf.SetLogger(log) })
}
