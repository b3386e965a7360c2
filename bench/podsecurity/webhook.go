package podsecurity

// This file brings up Kubernetes' own webhook for Pod Security with the manifests of its module.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix/bench/peers"
)

func kubernetesWebhook() *Peer {
	return &Peer{
		Name: KubernetesWebhook, namespace: "psa", labels: map[string]string{api.EnforceLevelLabel: string(api.LevelRestricted)},
		Beyond: "reads the labels of namespaces from a cache, and evaluates three standards for each pod",
		setUp:  setUpKubernetesWebhook,
	}
}

func setUpKubernetesWebhook(ctx context.Context, c *cluster, p *Peer) (func(context.Context) *exec.Cmd, error) {
	path, err := peers.Path(peersFolder, peers.PodSecurity)
	if err != nil {
		return nil, err
	}
	module, err := peers.ModuleDir(ctx, peersFolder, peers.PodSecurity)
	if err != nil {
		return nil, err
	}
	manifests := filepath.Join(module, "webhook", "manifests")
	var settings corev1.ConfigMap
	var registration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := readManifest(filepath.Join(manifests, "20-configmap.yaml"), &settings); err != nil {
		return nil, err
	}
	if err := readManifest(filepath.Join(manifests, "70-validatingwebhookconfiguration.yaml"), &registration); err != nil {
		return nil, err
	}
	const file = "podsecurityconfiguration.yaml"
	if err := os.WriteFile(filepath.Join(c.dir, file), []byte(settings.Data[file]), 0o600); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	for i := range registration.Webhooks {
		w := &registration.Webhooks[i]
		url := fmt.Sprintf("https://127.0.0.1:%d/", port)
		w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: c.bundle}
		w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"peer": p.namespace}}
	}
	certificate, key := c.certificateFiles()
	return func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, path, "--kubeconfig", c.Kubeconfig(), "--config", filepath.Join(c.dir, file),
			"--tls-cert-file", certificate, "--tls-private-key-file", key, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port))
	}, c.create(ctx, &registration)
}

// readManifest reads a file with one object in YAML.
func readManifest(file string, into any) error {
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
