// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/pod-security-admission/api"
	admission "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

const (
	folder = "../../deploy/kubernetes"
	// exporterFolder has agents that read dcgm-exporter, without gateways.
	exporterFolder = "../../deploy/kubernetes-dcgm-exporter"
)

// objects reads every manifest that the kustomization lists, strictly: a key that the API does not
// know is an error.
func objects(t *testing.T) map[string]any { return objectsIn(t, folder) }

func objectsIn(t *testing.T, folder string) map[string]any {
	t.Helper()
	var k struct {
		Resources []string `json:"resources"`
	}
	b, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(b, &k))
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, len(k.Resources)+1, "every manifest is a resource of the kustomization")
	found := map[string]any{}
	for _, name := range k.Resources {
		b, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		docs := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(b)))
		for {
			doc := make([]byte, 1<<20)
			n, err := docs.Read(doc)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			key, obj := object(t, name, doc[:n])
			require.NotContains(t, found, key)
			found[key] = obj
		}
	}
	return found
}

func object(t *testing.T, file string, doc []byte) (string, any) {
	t.Helper()
	var head struct {
		meta.TypeMeta   `json:",inline"`
		meta.ObjectMeta `json:"metadata"`
	}
	require.NoError(t, yaml.Unmarshal(doc, &head), file)
	kinds := map[string]any{
		"v1 Namespace": &core.Namespace{}, "v1 ServiceAccount": &core.ServiceAccount{}, "v1 Service": &core.Service{},
		"rbac.authorization.k8s.io/v1 ClusterRole":        &rbac.ClusterRole{},
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding": &rbac.ClusterRoleBinding{},
		"apps/v1 DaemonSet":                               &apps.DaemonSet{}, "apps/v1 StatefulSet": &apps.StatefulSet{},
		"policy/v1 PodDisruptionBudget": &policy.PodDisruptionBudget{}, "v1 ConfigMap": &core.ConfigMap{},
		"monitoring.coreos.com/v1 PodMonitor":     &monitoring.PodMonitor{},
		"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{},
		"monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{},
	}
	obj, ok := kinds[head.APIVersion+" "+head.Kind]
	require.True(t, ok, "%s: %s %s", file, head.APIVersion, head.Kind)
	require.NoError(t, yaml.UnmarshalStrict(doc, obj), file)
	require.Empty(t, validation.IsDNS1123Subdomain(head.Name), "%s: name %q", file, head.Name)
	return head.Kind + " " + head.Name, obj
}

// pods returns the pod templates of the workloads, by their pipelines.
func pods(t *testing.T) map[string]core.PodTemplateSpec {
	t.Helper()
	all := objects(t)
	return map[string]core.PodTemplateSpec{
		"agent":   all["DaemonSet otelgpu-agent"].(*apps.DaemonSet).Spec.Template,
		"gateway": all["StatefulSet otelgpu-gateway"].(*apps.StatefulSet).Spec.Template,
		"dcgm-exporter": objectsIn(t, exporterFolder)["DaemonSet otelgpu-agent"].(*apps.DaemonSet).
			Spec.Template,
	}
}

func TestEveryManifestIsAnObjectOfTheAPI(t *testing.T) {
	all := objects(t)
	assert.Len(t, all, 8)
	agent, gateway := all["DaemonSet otelgpu-agent"].(*apps.DaemonSet),
		all["StatefulSet otelgpu-gateway"].(*apps.StatefulSet)
	service := all["Service otelgpu-gateway"].(*core.Service)
	budget := all["PodDisruptionBudget otelgpu-gateway"].(*policy.PodDisruptionBudget)
	for _, x := range []struct{ selector, labels map[string]string }{
		{agent.Spec.Selector.MatchLabels, agent.Spec.Template.Labels},
		{gateway.Spec.Selector.MatchLabels, gateway.Spec.Template.Labels},
		{service.Spec.Selector, gateway.Spec.Template.Labels},
		{budget.Spec.Selector.MatchLabels, gateway.Spec.Template.Labels},
	} {
		require.NotEmpty(t, x.selector)
		for k, v := range x.selector {
			assert.Equal(t, v, x.labels[k], k)
		}
	}
	assert.Equal(t, service.Name, gateway.Spec.ServiceName)
	assert.Equal(t, core.ClusterIPNone, service.Spec.ClusterIP)
	exporter := objectsIn(t, exporterFolder)
	assert.Len(t, exporter, 5)
	for _, all := range []map[string]any{all, exporter} {
		agent := all["DaemonSet otelgpu-agent"].(*apps.DaemonSet)
		assert.Equal(t, agent.Spec.Selector.MatchLabels, agent.Spec.Template.Labels)
		binding := all["ClusterRoleBinding otelgpu"].(*rbac.ClusterRoleBinding)
		assert.Contains(t, all, "ClusterRole "+binding.RoleRef.Name)
		assert.Contains(t, all, "ServiceAccount "+binding.Subjects[0].Name)
		assert.Contains(t, all, "Namespace "+binding.Subjects[0].Namespace)
		assert.Equal(t, binding.Subjects[0].Name, agent.Spec.Template.Spec.ServiceAccountName)
	}
}

// TestThePipelineOfDCGMExporterHasItsVariables compares the variables of the agent with the
// pipeline's variables that no default can replace. Its role lists pods, by which it finds the
// exporter.
func TestThePipelineOfDCGMExporterHasItsVariables(t *testing.T) {
	set := map[string]bool{}
	for _, e := range pods(t)["dcgm-exporter"].Spec.Containers[0].Env {
		set[e.Name] = true
		assert.Contains(t, text(t, "dcgm-exporter"), "${env:"+e.Name)
	}
	for _, m := range regexp.MustCompile(`\$\{env:(\w+_(?:NAME|IP|ENDPOINT))\b`).FindAllStringSubmatch(text(t, "dcgm-exporter"), -1) {
		assert.True(t, set[m[1]], m[1])
	}
	role := objectsIn(t, exporterFolder)["ClusterRole otelgpu"].(*rbac.ClusterRole)
	assert.Contains(t, role.Rules[0].Resources, "pods")
	assert.Contains(t, role.Rules[0].Verbs, "list")
}

// TestWorkloadsMeetPodSecurity: requirements of Pod Security's level restricted; the agent deviates
// only where it needs node access.
func TestWorkloadsMeetPodSecurity(t *testing.T) {
	for name, pod := range pods(t) {
		spec := pod.Spec
		require.Len(t, spec.Containers, 1, name)
		c := spec.Containers[0]
		require.NotNil(t, spec.SecurityContext, name)
		require.NotNil(t, spec.SecurityContext.SeccompProfile, name)
		assert.Equal(t, core.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type, name)
		require.NotNil(t, c.SecurityContext, name)
		assert.Equal(t, false, *c.SecurityContext.AllowPrivilegeEscalation, name)
		assert.Equal(t, true, *c.SecurityContext.ReadOnlyRootFilesystem, name)
		assert.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
		assert.Empty(t, c.SecurityContext.Capabilities.Add, name)
		assert.Nil(t, c.SecurityContext.Privileged, name)
		assert.False(t, spec.HostNetwork || spec.HostPID || spec.HostIPC, name)
		assert.NotZero(t, c.Resources.Requests.Memory().Value(), name)
		assert.NotZero(t, c.Resources.Requests.Cpu().MilliValue(), name)
		assert.Greater(t, c.Resources.Limits.Memory().Value(), c.Resources.Requests.Memory().Value(), name)
		assert.NotContains(t, c.Image, ":latest", name)
		volumes := map[string]core.Volume{}
		for _, v := range spec.Volumes {
			volumes[v.Name] = v
			if v.HostPath != nil {
				assert.Equal(t, "agent", name)
				assert.Equal(t, "/var/lib/kubelet/pod-resources", v.HostPath.Path)
			}
		}
		for _, m := range c.VolumeMounts {
			assert.Contains(t, volumes, m.Name, name)
			assert.True(t, m.ReadOnly, "%s: %s", name, m.Name)
		}
		assert.Len(t, c.VolumeMounts, len(volumes), name)
		root := c.SecurityContext.RunAsUser != nil && *c.SecurityContext.RunAsUser == 0
		assert.Equal(t, name == "agent", root, "the kubelet's socket is root's")
		if name == "gateway" {
			assert.True(t, *spec.SecurityContext.RunAsNonRoot)
			assert.False(t, *spec.AutomountServiceAccountToken)
		}
	}
}

func TestTheAgentSeesTheNodesDevicesAndTheKubelet(t *testing.T) {
	pod := pods(t)["agent"]
	require.NotNil(t, pod.Spec.RuntimeClassName)
	assert.Equal(t, "nvidia", *pod.Spec.RuntimeClassName)
	c := pod.Spec.Containers[0]
	mounted := slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool {
		// The default path of internal/podresources.
		return m.MountPath == path.Dir("/var/lib/kubelet/pod-resources/kubelet.sock")
	})
	assert.True(t, mounted)
	assert.Contains(t, text(t, "agent"), "kubernetes: {}", "and asks it")
}

// TestPortsAreTheOnesThatThePipelinesListenOn compares the manifests with the Collector's
// configuration: named ports, probes and the annotations of Prometheus.
func TestPortsAreTheOnesThatThePipelinesListenOn(t *testing.T) {
	listen := regexp.MustCompile(`endpoint: "\[\$\{env:OTELGPU_POD_IP:-127\.0\.0\.1\}\]:(\d+)"`)
	own := regexp.MustCompile(`(?s)prometheus:\s+host: \$\{env:OTELGPU_POD_IP:-127\.0\.0\.1\}\s+port: (\d+)`)
	for name, pod := range pods(t) {
		c, config := pod.Spec.Containers[0], text(t, name)
		var want, got []string
		for _, m := range append(listen.FindAllStringSubmatch(config, -1), own.FindAllStringSubmatch(config, -1)...) {
			want = append(want, m[1])
		}
		ports := map[string]int32{}
		for _, p := range c.Ports {
			require.Empty(t, validation.IsValidPortName(p.Name), p.Name)
			got = append(got, strconv.Itoa(int(p.ContainerPort)))
			ports[p.Name] = p.ContainerPort
		}
		assert.ElementsMatch(t, want, got, name)
		assert.Equal(t, strconv.Itoa(int(ports["metrics"])), pod.Annotations["prometheus.io/port"], name)
		assert.Equal(t, "true", pod.Annotations["prometheus.io/scrape"], name)
		for _, probe := range []*core.Probe{c.ReadinessProbe, c.LivenessProbe} {
			require.NotNil(t, probe, name)
			assert.Contains(t, ports, probe.HTTPGet.Port.String(), name)
		}
	}
}

// TestIPv4AndIPv6AddressesAreSupported: an IPv6 address must be in brackets before a port, and an
// IPv4 address may be.
func TestIPv4AndIPv6AddressesAreSupported(t *testing.T) {
	bare := regexp.MustCompile(`[^\[]\$\{env:OTELGPU_[A-Z]+_IP[^}]*\}:\d`)
	for name := range pods(t) {
		assert.Empty(t, bare.FindAllString(text(t, name), -1), name)
	}
}

func TestVariablesOfAddressesComeFromTheDownwardAPI(t *testing.T) {
	for name, pod := range pods(t) {
		for _, e := range pod.Spec.Containers[0].Env {
			switch e.Name {
			case "OTELGPU_POD_IP":
				assert.Equal(t, "status.podIP", e.ValueFrom.FieldRef.FieldPath, name)
			case "OTELGPU_NODE_IP":
				assert.Equal(t, "status.hostIP", e.ValueFrom.FieldRef.FieldPath, name)
			case "OTELGPU_NODE_NAME":
				assert.Equal(t, "spec.nodeName", e.ValueFrom.FieldRef.FieldPath, name)
			}
		}
	}
}

func TestTheImageIsNamedOnceByItsDigest(t *testing.T) {
	for _, folder := range []string{folder, exporterFolder} {
		b, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
		require.NoError(t, err)
		var k struct {
			Images []struct {
				Name    string `json:"name"`
				NewName string `json:"newName"`
				Digest  string `json:"digest"`
			} `json:"images"`
		}
		require.NoError(t, yaml.Unmarshal(b, &k))
		require.Len(t, k.Images, 1)
		assert.Regexp(t, `^sha256:[0-9a-f]{64}$`, k.Images[0].Digest)
		for name, pod := range pods(t) {
			assert.Equal(t, k.Images[0].Name, pod.Spec.Containers[0].Image, name)
		}
		assert.True(t, strings.HasSuffix(k.Images[0].NewName, "/"+k.Images[0].Name))
	}
}

// text returns the configuration that a workload mounts.
func text(t *testing.T, name string) string {
	t.Helper()
	folder := folder
	if name == "dcgm-exporter" {
		folder = exporterFolder
	}
	b, err := os.ReadFile(filepath.Join(folder, "config", fmt.Sprint(name, ".yaml")))
	require.NoError(t, err)
	return string(b)
}

// levels evaluates a pod with the code of Kubernetes' own admission plugin and returns by control
// why a level forbids it.
func levels(t *testing.T, level api.Level, name string, labels map[string]string, spec core.PodSpec) map[string]string {
	t.Helper()
	evaluator, err := admission.NewEvaluator(admission.DefaultChecks(), nil)
	require.NoError(t, err)
	forbidden := map[string]string{}
	for _, r := range evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()},
		&meta.ObjectMeta{Name: name, Labels: labels}, &spec) {
		if !r.Allowed {
			forbidden[r.ForbiddenReason] = r.ForbiddenDetail
		}
	}
	return forbidden
}

func reasons(forbidden map[string]string) []string {
	return slices.Sorted(maps.Keys(forbidden))
}

// snippet reads one of the examples for applications, strictly.
func snippet(t *testing.T, name string) *apps.Deployment {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, "snippets", name+".yaml"))
	require.NoError(t, err)
	var d apps.Deployment
	require.NoError(t, yaml.UnmarshalStrict(b, &d), name)
	require.Equal(t, "Deployment", d.Kind)
	require.Equal(t, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels)
	return &d
}

// captured returns the agent's template with the patch of deploy/kubernetes-capture, merged as by
// kustomize.
func captured(t *testing.T) core.PodTemplateSpec {
	t.Helper()
	patch, err := os.ReadFile(filepath.Join("..", "..", "deploy", "kubernetes-capture", "agent.yaml"))
	require.NoError(t, err)
	change, err := yaml.YAMLToJSON(patch)
	require.NoError(t, err)
	before, err := json.Marshal(objects(t)["DaemonSet otelgpu-agent"])
	require.NoError(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, change, apps.DaemonSet{})
	require.NoError(t, err)
	var d apps.DaemonSet
	require.NoError(t, yaml.UnmarshalStrict(after, &d))
	return d.Spec.Template
}

// TestPodSecurityAdmitsWorkloadsAtTheDocumentedLevels: gateways, services and the sidecar at
// restricted; for the agents, exactly the deviations in docs/kubernetes.md.
func TestPodSecurityAdmitsWorkloadsAtTheDocumentedLevels(t *testing.T) {
	all := pods(t)
	restricted := []string{"hostPort", "restricted volume types", "runAsNonRoot != true", "runAsUser=0"}
	for _, x := range []struct {
		name                 string
		pod                  core.PodTemplateSpec
		baseline, restricted []string
	}{
		{"gateway", all["gateway"], nil, nil},
		{"agent", all["agent"], []string{"hostPath volumes", "hostPort"}, restricted},
		{"agent of dcgm-exporter", all["dcgm-exporter"], []string{"hostPort"}, []string{"hostPort"}},
		{"agent that captures", captured(t), []string{"hostPath volumes", "hostPort"}, restricted},
		{"application", snippet(t, "application").Spec.Template, nil, nil},
		{"capture", snippet(t, "capture").Spec.Template, []string{"hostPath volumes"}, []string{"restricted volume types"}},
		{"sidecar", snippet(t, "sidecar").Spec.Template, nil, nil},
	} {
		for level, want := range map[api.Level][]string{api.LevelBaseline: x.baseline, api.LevelRestricted: x.restricted} {
			got := levels(t, level, x.name, x.pod.Labels, x.pod.Spec)
			assert.Equal(t, want, reasons(got), "%s at %s: %v", x.name, level, got)
		}
	}
	// The evaluator does find violations.
	gateway := all["gateway"]
	bad := *gateway.Spec.DeepCopy()
	bad.Containers[0].SecurityContext.Capabilities.Drop = nil
	assert.Equal(t, []string{"unrestricted capabilities"}, reasons(levels(t, api.LevelRestricted, "gateway", nil, bad)))
	namespace := objects(t)["Namespace observability"].(*core.Namespace)
	assert.Equal(t, string(api.LevelPrivileged), namespace.Labels[api.EnforceLevelLabel], "the agent needs it")
}

// TestCaptureMeetsInOneFolder compares library, environment, folder and group of the application
// with those in the agent.
func TestCaptureMeetsInOneFolder(t *testing.T) {
	agent := captured(t)
	source := func(spec core.PodSpec, c core.Container, path string) (found core.VolumeSource, readOnly bool) {
		for _, m := range c.VolumeMounts {
			if m.MountPath != path {
				continue
			}
			for _, v := range spec.Volumes {
				if v.Name == m.Name {
					return v.VolumeSource, m.ReadOnly
				}
			}
		}
		t.Fatalf("nothing is mounted at %s of %s", path, c.Name)
		return
	}
	environment := func(c core.Container) map[string]string {
		out := map[string]string{}
		for _, e := range c.Env {
			out[e.Name] = e.Value
		}
		return out
	}
	config, err := os.ReadFile(filepath.Join("..", "..", "deploy", "kubernetes-capture", "capture.yaml"))
	require.NoError(t, err)
	for _, name := range []string{"capture", "sidecar"} {
		spec := snippet(t, name).Spec.Template.Spec
		app, library := spec.Containers[0], spec.InitContainers[0]
		env := environment(app)
		_, readOnly := source(spec, app, path.Dir(env["CUDA_INJECTION64_PATH"]))
		assert.True(t, readOnly)
		brought, _ := source(spec, library, strings.TrimSuffix(library.Args[0], "/"))
		used, _ := source(spec, app, path.Dir(env["CUDA_INJECTION64_PATH"]))
		assert.Equal(t, brought, used, "the library comes to where the driver looks")
		rings, readOnly := source(spec, app, env["OTELGPU_CAPTURE_DIR"])
		assert.False(t, readOnly)
		folder := "folder: " + env["OTELGPU_CAPTURE_DIR"]
		if name == "capture" {
			agents, _ := source(agent.Spec, agent.Spec.Containers[0], env["OTELGPU_CAPTURE_DIR"])
			assert.Equal(t, rings.HostPath.Path, agents.HostPath.Path, "one folder of the node")
			assert.Equal(t, core.HostPathDirectoryOrCreate, *agents.HostPath.Type)
			assert.Equal(t, agent.Spec.SecurityContext.SupplementalGroups, spec.SecurityContext.SupplementalGroups, "one group")
			prepare := agent.Spec.InitContainers[0].Command[2]
			assert.Contains(t, prepare, fmt.Sprintf("chgrp %d %s", spec.SecurityContext.SupplementalGroups[0],
				env["OTELGPU_CAPTURE_DIR"]))
			assert.Contains(t, prepare, "chmod 2770", "the setgid bit makes rings the group's")
			assert.Contains(t, string(config), folder)
			continue
		}
		collector := spec.InitContainers[1]
		assert.Equal(t, core.ContainerRestartPolicyAlways, *collector.RestartPolicy)
		theirs, _ := source(spec, collector, env["OTELGPU_CAPTURE_DIR"])
		assert.Equal(t, rings, theirs)
		assert.Equal(t, core.StorageMediumMemory, rings.EmptyDir.Medium)
		assert.NotNil(t, spec.SecurityContext.FSGroup)
		assert.Contains(t, environment(collector)["COLLECTOR"], folder)
	}
}

// TestApplicationsSendToTheirOwnNode verifies that variables are in an order in which Kubernetes
// can expand them.
func TestApplicationsSendToTheirOwnNode(t *testing.T) {
	ports := map[int32]int32{}
	for _, p := range pods(t)["agent"].Spec.Containers[0].Ports {
		ports[p.HostPort] = p.ContainerPort
	}
	c := snippet(t, "application").Spec.Template.Spec.Containers[0]
	known := map[string]string{}
	for _, e := range c.Env {
		for _, m := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(e.Value, -1) {
			assert.Contains(t, known, m[1], "%s stands before it", e.Name)
		}
		known[e.Name] = e.Value
		if e.ValueFrom != nil {
			known[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	assert.Equal(t, "status.hostIP", known["NODE_IP"])
	assert.Equal(t, "http://$(NODE_IP):4317", known["OTEL_EXPORTER_OTLP_ENDPOINT"])
	assert.EqualValues(t, 4317, ports[4317], "the agent listens there on the node")
}
