package main

// This file opens the cluster for the demo, and cleans it up.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const (
	// makeTimeout bounds the creation of the namespace, and cleanUpTimeout the cleanup. pollEvery is the interval at
	// which the demo checks whether an object has appeared or disappeared.
	makeTimeout    = 10 * time.Second
	cleanUpTimeout = 60 * time.Second
	pollEvery      = 50 * time.Millisecond
)

// cluster is a new namespace, either on the demo's own control plane or on the user's.
type cluster struct {
	config     *rest.Config
	kubeconfig string // path of the kubeconfig
	client     kubernetes.Interface
	namespace  string
	address    address
	plane      *eirinixtest.ControlPlane // nil for the user's control plane
}

// openCluster starts or finds the control plane and creates the namespace. After an error nothing is left behind.
func openCluster(ctx context.Context, s settings, out printer) (c *cluster, err error) {
	start := time.Now()
	c = &cluster{kubeconfig: s.kubeconfig, namespace: "eirinix-demo-" + rand.String(5)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if s.kubeconfig == "" {
		c.plane, err = eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: os.Stderr})
		if err != nil {
			return c, err
		}
		c.config, c.kubeconfig = c.plane.Config(), c.plane.Kubeconfig()
	} else if c.config, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig); err != nil {
		return c, fmt.Errorf("give -kubeconfig the path of a kubeconfig file: %w", err)
	}
	c.config.QPS, c.config.Burst = 200, 200 // the client's rate limit must not affect the measurements
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return c, err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return c, fmt.Errorf("the API server at %s does not answer: %w", c.config.Host, err)
	}
	if c.address, err = callAddress(s.host, c.config.Host); err != nil {
		return c, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	// Not ctx: after an interrupt it must be certain whether the namespace was created.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTimeout)
	defer cancel()
	if _, err := client.CoreV1().Namespaces().Create(making, namespace, metav1.CreateOptions{}); err != nil {
		return c, fmt.Errorf("namespace %s: %w", c.namespace, err)
	}
	c.client = client // from here on there is a namespace to clean up
	if c.plane != nil {
		out.fact("cluster", "etcd and kube-apiserver %s on this machine, up in %s", version.GitVersion, round(time.Since(start)))
	} else {
		out.fact("cluster", "%s, Kubernetes %s", c.config.Host, version.GitVersion)
	}
	out.fact("namespace", "%s, deleted at the end", c.namespace)
	return c, nil
}

// close removes the namespace with its contents, or the whole control plane if that is the demo's own.
func (c *cluster) close() error {
	if c.plane != nil {
		return c.plane.Stop()
	}
	if c.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpTimeout)
	defer cancel()
	if err := c.empty(ctx); err != nil {
		return fmt.Errorf("something is left in the cluster, remove it with kubectl --kubeconfig=%s delete namespace %s: %w", quote(c.kubeconfig), c.namespace, err)
	}
	return nil
}

// empty deletes the owners first, because a ReplicaSet would replace its pods. It uses no grace period, because the
// pods only sleep.
func (c *cluster) empty(ctx context.Context) error {
	now, all := *metav1.NewDeleteOptions(0), metav1.ListOptions{}
	core, apps := c.client.CoreV1(), c.client.AppsV1()
	if err := errors.Join(
		apps.Deployments(c.namespace).DeleteCollection(ctx, now, all),
		apps.ReplicaSets(c.namespace).DeleteCollection(ctx, now, all),
		core.Pods(c.namespace).DeleteCollection(ctx, now, all),
		core.Secrets(c.namespace).DeleteCollection(ctx, now, all),
		core.Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{}),
	); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		_, err := core.Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

func round(d time.Duration) time.Duration {
	if d < 100*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
