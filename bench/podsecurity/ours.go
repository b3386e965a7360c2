package podsecurity

// This file holds the peers whose programs are in this repository.

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
)

// none is the API server without a webhook.
func none() *Peer { return &Peer{Name: "no webhook", namespace: "none"} }

// Names of the peers on this library.
const (
	Ours              = "ours"
	OursWhole         = "ours, examples/pod-security"
	ControllerRuntime = "controller-runtime"
	KubernetesWebhook = "Kubernetes' Pod Security webhook"
)

// ours is a Validation around Kubernetes' own checks.
func ours() *Peer {
	return &Peer{
		Name: Ours, namespace: "ours",
		Beyond: "registers itself, and creates and renews its certificate",
		setUp: func(ctx context.Context, c *cluster, p *Peer) (func(context.Context) *exec.Cmd, error) {
			return buildProgram(ctx, c, ".", "ours", func(port int) []string { return []string{c.Kubeconfig(), p.namespace, strconv.Itoa(port)} })
		},
	}
}

// oursWhole is the example, which does all that Kubernetes' own webhook does.
func oursWhole() *Peer {
	return &Peer{
		Name: OursWhole, namespace: "ours-whole", labels: map[string]string{api.EnforceLevelLabel: string(api.LevelRestricted)},
		Beyond: "the above, and all that Kubernetes' own webhook does",
		setUp: func(ctx context.Context, c *cluster, p *Peer) (func(context.Context) *exec.Cmd, error) {
			return buildProgram(ctx, c, filepath.Join("..", "examples"), "pod-security", func(port int) []string {
				return []string{"-kubeconfig", c.Kubeconfig(), "-namespace", p.namespace, "-host", "127.0.0.1", "-port", strconv.Itoa(port)}
			})
		},
	}
}

// controllerRuntime is the same function as ours, as a validator of controller-runtime.
func controllerRuntime() *Peer {
	return &Peer{
		Name: ControllerRuntime, namespace: "cr",
		setUp: func(ctx context.Context, c *cluster, p *Peer) (func(context.Context) *exec.Cmd, error) {
			certificate, _ := c.certificateFiles()
			var at int
			program, err := buildProgram(ctx, c, ".", "controllerruntime", func(port int) []string {
				at = port
				return []string{c.Kubeconfig(), p.namespace, strconv.Itoa(port), filepath.Dir(certificate)}
			})
			if err != nil {
				return nil, err
			}
			return program, c.create(ctx, c.validatingWebhook(p.namespace, fmt.Sprintf("https://127.0.0.1:%d/validate--v1-pod", at)))
		},
	}
}

// buildProgram builds a program of this repository as the peers are built (bench/peers). Its arguments contain a free
// port.
func buildProgram(ctx context.Context, c *cluster, dir, name string, arguments func(port int) []string) (func(context.Context) *exec.Cmd, error) {
	if dir == "." {
		dir = "podsecurity"
	}
	path := filepath.Join(c.dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", path, ".")
	build.Dir = filepath.Join(dir, name)
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build in %s: %w: %s", build.Dir, err, strings.TrimSpace(string(text)))
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := arguments(port)
	return func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, path, args...) }, nil
}

// validatingWebhook returns the registration of a webhook that is called about new pods of a peer's namespace.
func (c *cluster) validatingWebhook(namespace, url string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    namespace + ".bench.example.org",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: c.bundle},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             &none,
			FailurePolicy:           &fail,
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
}
