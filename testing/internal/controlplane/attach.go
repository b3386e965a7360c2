package controlplane

// This file lets the packages of one `go test` share control planes that the process above them has started.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

// FoldersVariable names the folders of running control planes, for Attach. The command testing/internal/hold sets it.
const FoldersVariable = "EIRINIX_CONTROLPLANES"

const (
	etcdURLFile = "etcd.url"
	userLock    = "user.lock"
)

// Folder returns the private folder of a control plane, which Attach takes.
func (c *Plane) Folder() string { return c.dir.path }

// Attach returns the first of these control planes that is free. Another process has started them and will stop them. One
// process has one at a time: Attach waits until a process before has ended, and removes what that one left behind that acts
// on all namespaces. The processes can thus use the same names, and webhooks that match every object. The first API server
// cannot be paused, stopped or restarted; one that is added can, and ends with Stop.
func Attach(ctx context.Context, folders []string, opts Options) (*Plane, error) {
	for {
		for _, folder := range folders {
			lock, err := lockFile(filepath.Join(folder, userLock), false)
			if err == nil {
				c := &Plane{
					opts: opts, progress: &progressWriter{w: opts.Progress}, logDir: folder, launcher: newLauncher(),
					dir: &runDir{path: folder, lock: lock, borrowed: true},
				}
				c.stop = sync.OnceValue(c.stopAll)
				if err := c.attach(ctx); err != nil {
					return nil, errors.Join(err, c.stop())
				}
				return c, nil
			}
			if !errors.Is(err, errLocked) {
				return nil, fmt.Errorf("lock of the control plane: %w", err)
			}
		}
		if err := wait.Sleep(ctx, portPause); err != nil {
			return nil, err
		}
	}
}

func (c *Plane) attach(ctx context.Context) (err error) {
	if c.assets, err = findAssets(ctx, c.opts, c.progress); err != nil {
		return err
	}
	url, err := os.ReadFile(filepath.Join(c.dir.path, etcdURLFile))
	if err != nil {
		return fmt.Errorf("no control plane: %w", err)
	}
	c.etcdURL = string(url)
	if c.keys, err = readKeys(c.dir.path); err != nil {
		return err
	}
	first := &APIServer{plane: c, name: "kube-apiserver"}
	if first.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig()); err != nil {
		return err
	}
	first.config.QPS, first.config.Burst = clientQPS, clientBurst
	c.apiServers = []*APIServer{first}
	return c.clear(ctx)
}

// clusterWide are the resources of which an object acts on all namespaces, or takes a name from other packages. The order
// matters: a webhook could refuse the deletion of what comes after it.
var clusterWide = []schema.GroupVersionResource{
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
}

// ours are all objects but the roles that the API server makes itself.
var ours = metav1.ListOptions{LabelSelector: "!kubernetes.io/bootstrapping"}

// clear deletes what a package has left, and waits until it is gone.
func (c *Plane) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	objects, err := dynamic.NewForConfig(c.apiServers[0].config)
	if err != nil {
		return err
	}
	for _, resource := range clusterWide {
		for left := -1; left != 0; {
			err := objects.Resource(resource).DeleteCollection(ctx, metav1.DeleteOptions{}, ours)
			if err == nil {
				var list *unstructured.UnstructuredList
				if list, err = objects.Resource(resource).List(ctx, ours); err == nil {
					left = len(list.Items)
				}
			}
			if left > 0 {
				err = wait.Sleep(ctx, portPause)
			}
			if err != nil {
				return fmt.Errorf("%s that the package before has left: %w", resource.Resource, err)
			}
		}
	}
	return nil
}
