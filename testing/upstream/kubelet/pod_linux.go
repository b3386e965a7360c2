package kubelet

// This file runs one pod: it mounts its Secrets, starts its program, probes it and reports its status.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// probeInterval is shorter than a probe's shortest period, because specs wait for every pod.
	probeInterval = 100 * time.Millisecond

	// grace is the time between SIGTERM and SIGKILL.
	grace = 10 * time.Second
)

// errUnready is the reason of a pod that is not ready yet.
var errUnready = errors.New("its readiness probe has not succeeded yet")

// pod is a pod that has been started.
type pod struct {
	*corev1.Pod

	kubelet *Kubelet
	stop    context.CancelFunc
	ended   chan struct{} // closed once its process is gone
}

// run runs the pod until ctx or its program ends.
func (p *pod) run(ctx context.Context) error {
	cmd, err := p.command(ctx)
	if err != nil {
		return errors.Join(err, p.report(ctx, corev1.PodPending, "", err))
	}
	if cmd == nil {
		err := p.follow(ctx, p.kubelet.Network.Address())
		<-ctx.Done()
		return err
	}
	address, err := p.launch(cmd)
	if err != nil {
		return errors.Join(err, p.report(ctx, corev1.PodFailed, "", err))
	}
	running, exit := context.WithCancelCause(ctx)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_ = cmd.Wait()
		exit(fmt.Errorf("its program ended: %s", cmd.ProcessState))
	}()
	err = p.follow(running, address)
	if err == nil {
		<-running.Done()
	}
	if ctx.Err() == nil && running.Err() != nil {
		err = errors.Join(context.Cause(running), p.report(ctx, corev1.PodFailed, address, context.Cause(running)))
	}
	p.stop()
	<-waited
	return err
}

// follow reports the pod running, and then ready.
func (p *pod) follow(ctx context.Context, address string) error {
	if err := p.report(ctx, corev1.PodRunning, address, errUnready); err != nil {
		return err
	}
	if err := p.probe(ctx, address); err != nil {
		return err
	}
	return p.report(ctx, corev1.PodRunning, address, nil)
}

// command returns the command of the pod's program, or nil for an idle one.
func (p *pod) command(ctx context.Context) (*exec.Cmd, error) {
	if len(p.Spec.Containers) != 1 {
		return nil, errors.New("it has more than one container")
	}
	c := p.Spec.Containers[0]
	program, err := p.kubelet.Programs(c.Image)
	if err != nil || program == Idle {
		return nil, err
	}
	folders, err := p.mount(ctx)
	if err != nil {
		return nil, err
	}
	args := append(append([]string{}, c.Command...), c.Args...)
	for _, mounted := range c.VolumeMounts {
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], mounted.MountPath, folders[mounted.Name])
		}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	cmd.Stdout, cmd.Stderr = p.kubelet.Log, p.kubelet.Log
	cmd.Env = []string{}
	for _, e := range c.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	return cmd, nil
}

// mount writes the pod's Secrets to folders, which it returns by the name of the volume.
func (p *pod) mount(ctx context.Context) (map[string]string, error) {
	folders := map[string]string{}
	for _, volume := range p.Spec.Volumes {
		if volume.Secret == nil {
			return nil, fmt.Errorf("its volume %s is no Secret", volume.Name)
		}
		secret, err := p.kubelet.Client.CoreV1().Secrets(p.Namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("its volume %s: %w", volume.Name, err)
		}
		folder := filepath.Join(p.kubelet.Folder, string(p.UID), volume.Name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		for file, content := range secret.Data {
			if err := os.WriteFile(filepath.Join(folder, file), content, 0o600); err != nil {
				return nil, err
			}
		}
		folders[volume.Name] = folder
	}
	return folders, nil
}

// launch starts the program in a network of its own, and returns its address.
func (p *pod) launch(cmd *exec.Cmd) (address string, err error) {
	// A program listens on all addresses of its network, so its own may come later.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := p.kubelet.launcher.do(cmd.Start); err != nil {
		return "", err
	}
	address, err = p.kubelet.Network.Attach(cmd.Process.Pid)
	if err != nil {
		p.stop()
		return "", errors.Join(err, cmd.Wait())
	}
	return address, nil
}

// probe waits until the readiness probe succeeds. Without a probe, a pod is ready at once.
func (p *pod) probe(ctx context.Context, address string) error {
	probe := p.Spec.Containers[0].ReadinessProbe
	if probe == nil || probe.HTTPGet == nil {
		return nil
	}
	url := fmt.Sprintf("%s://%s%s", strings.ToLower(string(probe.HTTPGet.Scheme)), net.JoinHostPort(address, probe.HTTPGet.Port.String()), probe.HTTPGet.Path)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // as a kubelet's
	client := &http.Client{Transport: transport, Timeout: time.Second}
	for {
		if succeeds(ctx, client, url) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(probeInterval):
		}
	}
}

func succeeds(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusBadRequest
}

// report writes the pod's status. unready is the reason why it is not ready, and nil if it is. A pod that is gone needs
// no status.
func (p *pod) report(ctx context.Context, phase corev1.PodPhase, address string, unready error) error {
	reason := ""
	if unready != nil {
		reason = unready.Error()
	}
	patch, err := json.Marshal(map[string]any{"status": p.status(phase, address, unready == nil, reason)})
	if err != nil {
		return err
	}
	_, err = p.kubelet.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (p *pod) status(phase corev1.PodPhase, address string, ready bool, reason string) corev1.PodStatus {
	now := metav1.Now()
	container := corev1.ContainerStatus{Name: p.Spec.Containers[0].Name, Image: p.Spec.Containers[0].Image, ImageID: "process", Ready: ready}
	switch phase {
	case corev1.PodRunning:
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		container.Started = new(true)
	case corev1.PodFailed:
		container.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: reason, FinishedAt: now}
	default:
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ProcessKubelet", Message: reason}
	}
	status := corev1.PodStatus{Phase: phase, StartTime: &now, Message: reason, ContainerStatuses: []corev1.ContainerStatus{container}}
	if address != "" {
		status.PodIP, status.PodIPs = address, []corev1.PodIP{{IP: address}}
		status.HostIP, status.HostIPs = gateway, []corev1.HostIP{{IP: gateway}}
	}
	condition := func(name corev1.PodConditionType, holds bool) {
		c := corev1.PodCondition{Type: name, Status: corev1.ConditionFalse, LastTransitionTime: now}
		if holds {
			c.Status = corev1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, c)
	}
	condition(corev1.PodScheduled, true)
	condition(corev1.PodInitialized, phase != corev1.PodPending)
	condition(corev1.ContainersReady, ready)
	condition(corev1.PodReady, ready)
	return status
}
