package podsecurity

// This file makes the pods that are sent, and reads Kubernetes' own fixtures.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod is a pod as it is sent.
type pod struct {
	name    string
	json    []byte
	refused bool // whether it violates the standard
}

// newPod returns a pod of about so many bytes of JSON: two containers and an init container with three volumes, and as
// many variables as it takes. One that is refused has a privileged container.
func newPod(bytes int, refused bool) (pod, error) {
	yes, no := true, false
	secure := func() *corev1.SecurityContext {
		return &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no,
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			RunAsNonRoot:             &yes,
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
	}
	container := func(name string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "registry.example.org/shop/" + name + ":1.4.2", SecurityContext: secure(),
			VolumeMounts: []corev1.VolumeMount{{Name: "settings", MountPath: "/etc/settings"}, {Name: "work", MountPath: "/work"}},
		}
	}
	p := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"app": "shop"}},
		Spec: corev1.PodSpec{
			InitContainers:  []corev1.Container{container("prepare")},
			Containers:      []corev1.Container{container("main"), container("proxy")},
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: secure().SeccompProfile},
			Volumes: []corev1.Volume{
				{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
				{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}},
				{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
	if refused {
		p.Spec.Containers[0].SecurityContext.Privileged = &yes
		p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
	}
	for i := 0; ; i++ {
		text, err := json.Marshal(p)
		if err != nil || len(text) >= bytes {
			return pod{name: fmt.Sprintf("%d KB", bytes/1000), json: text, refused: refused}, err
		}
		c := &p.Spec.Containers[i%2]
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SHOP_SETTING_%d", i), Value: fmt.Sprintf("https://settings.example.org/%d", i)})
	}
}

// readFixtures returns the pods with which Kubernetes tests the newest version of the standard, from the module that
// holds the standard.
func readFixtures(ctx context.Context) (all []pod, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	versions := filepath.Join(strings.TrimSpace(string(out)), "test", "testdata", "restricted")
	newest, err := newestVersion(versions)
	if err != nil {
		return nil, err
	}
	for _, verdict := range []string{"pass", "fail"} {
		files, err := filepath.Glob(filepath.Join(versions, newest, verdict, "*.yaml"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			var p corev1.Pod
			if err := readManifest(file, &p); err != nil {
				return nil, err
			}
			p.Name = strings.ReplaceAll(p.Name, "_", "-") // names of files, which API servers refuse
			text, err := json.Marshal(p)
			if err != nil {
				return nil, err
			}
			all = append(all, pod{name: verdict + "/" + strings.TrimSuffix(filepath.Base(file), ".yaml"), json: text, refused: verdict == "fail"})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s holds no pods", versions)
	}
	return all, nil
}

// newestVersion returns the folder whose name is the highest minor release.
func newestVersion(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	newest, of := -1, func(e os.DirEntry) (minor int) {
		if _, err := fmt.Sscanf(e.Name(), "v1.%d", &minor); err != nil {
			return -1
		}
		return minor
	}
	for _, e := range entries {
		newest = max(newest, of(e))
	}
	i := slices.IndexFunc(entries, func(e os.DirEntry) bool { return of(e) == newest && newest >= 0 })
	if i < 0 {
		return "", fmt.Errorf("%s holds no versions", dir)
	}
	return entries[i].Name(), nil
}
