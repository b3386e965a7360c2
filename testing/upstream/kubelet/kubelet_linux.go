// Package kubelet runs the pods of a test cluster as processes. It is a scheduler and a kubelet in one, for pods whose
// images are known programs. There are no containers: a pod is a process in a network namespace of its own.
//
// A pod's Secrets become files in a folder, and its arguments name that folder instead of the mount path. It gets an
// address that the API server reaches, and it is Ready once its readiness probe succeeds. All else of a pod is ignored:
// other volumes, several programs in one pod, restarts, init containers, and attach, exec and logs.
package kubelet

// This file follows the pods: it binds them to the node, and starts and ends them.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Kubelet runs the pods of a cluster. All its fields must be set.
type Kubelet struct {
	Client   kubernetes.Interface
	Node     string    // the name of the node to create
	Programs Programs  // for the images
	Network  *Network  // of the pods
	Folder   string    // for the Secrets that pods mount
	Log      io.Writer // also receives the output of the programs

	launcher launcher

	mu   sync.Mutex
	pods map[types.UID]*pod // the pods that have been started
	runs sync.WaitGroup
}

// Programs finds the program that runs instead of an image.
type Programs func(image string) (path string, err error)

// Idle is the program of an image that does nothing. Its pod gets an address, but no process.
const Idle = "idle"

// Run creates the node and runs pods until ctx ends. Then it ends them all.
func (k *Kubelet) Run(ctx context.Context) error {
	k.pods, k.launcher = map[types.UID]*pod{}, newLauncher()
	defer close(k.launcher)
	if err := k.createNode(ctx); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(k.Client, 0)
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.see(ctx, o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { k.see(ctx, o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			k.forget(o.(*corev1.Pod))
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	k.runs.Wait()
	return nil
}

// createNode creates a node that is ready for pods.
func (k *Kubelet) createNode(ctx context.Context) error {
	node, err := k.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.Node}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the node %s: %w", k.Node, err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "ProcessKubelet"}}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity
	if _, err := k.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("report the node %s ready: %w", k.Node, err)
	}
	return nil
}

// see does the next thing that a pod needs.
func (k *Kubelet) see(ctx context.Context, p *corev1.Pod) {
	switch {
	case p.Spec.NodeName == "" && p.DeletionTimestamp == nil:
		if err := k.bind(ctx, p); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			k.logf(p, "it cannot be bound to the node: %v", err)
		}
	case p.Spec.NodeName != k.Node:
	case p.DeletionTimestamp != nil:
		k.delete(ctx, p)
	default:
		k.start(ctx, p)
	}
}

// bind does a scheduler's work.
func (k *Kubelet) bind(ctx context.Context, p *corev1.Pod) error {
	return k.Client.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: k.Node},
	}, metav1.CreateOptions{})
}

// start runs a pod, once.
func (k *Kubelet) start(ctx context.Context, p *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pods[p.UID] != nil {
		return
	}
	running, stop := context.WithCancel(ctx)
	started := &pod{kubelet: k, Pod: p, stop: stop, ended: make(chan struct{})}
	k.pods[p.UID] = started
	k.runs.Go(func() {
		defer close(started.ended)
		defer stop()
		if err := started.run(running); err != nil && !errors.Is(err, context.Canceled) {
			k.logf(p, "%v", err)
		}
	})
}

// delete ends a pod and then removes its object, as a kubelet does.
func (k *Kubelet) delete(ctx context.Context, p *corev1.Pod) {
	ending := k.find(p)
	k.runs.Go(func() {
		if ending != nil {
			ending.stop()
			<-ending.ended
		}
		err := k.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
			k.logf(p, "it has ended, but its object cannot be removed: %v", err)
		}
	})
}

// forget ends a pod whose object is gone.
func (k *Kubelet) forget(p *corev1.Pod) {
	if gone := k.find(p); gone != nil {
		gone.stop()
	}
}

func (k *Kubelet) find(p *corev1.Pod) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[p.UID]
}

func (k *Kubelet) logf(p *corev1.Pod, format string, args ...any) {
	fmt.Fprintf(k.Log, "process kubelet: pod %s/%s: %s\n", p.Namespace, p.Name, fmt.Sprintf(format, args...))
}
