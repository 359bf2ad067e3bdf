// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	nodes "go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the table of values in the chart's README")

const (
	chartFolder = "../../deploy/helm/otelgpu"
	namespace   = "observability"
)

// render returns the objects of the chart by kind and name, decoded strictly, and the notes.
func render(t *testing.T, values string) (map[string]any, string) {
	t.Helper()
	files, err := renderFiles(values)
	require.NoError(t, err)
	notes := files["otelgpu/templates/NOTES.txt"]
	delete(files, "otelgpu/templates/NOTES.txt")
	found := map[string]any{}
	for file, text := range files {
		for _, doc := range releaseutil.SplitManifests(text) {
			if blank(doc) {
				continue
			}
			key, obj := object(t, file, []byte(doc))
			require.NotContains(t, found, key)
			found[key] = obj
		}
	}
	return found, notes
}

func blank(doc string) bool {
	for line := range strings.Lines(doc) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

func renderFiles(values string) (map[string]string, error) {
	c, err := loader.LoadDir(chartFolder)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, given,
		chartutil.ReleaseOptions{Name: "otelgpu", Namespace: namespace, IsInstall: true, Revision: 1},
		chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true, LintMode: false}.Render(c, all)
}

// valuesFiles returns the values that the tests render, by the name of their file.
func valuesFiles(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("testdata/values/*.yaml")
	require.NoError(t, err)
	out := map[string]string{"default": ""}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		out[strings.TrimSuffix(filepath.Base(path), ".yaml")] = string(b)
	}
	require.GreaterOrEqual(t, len(out), 5)
	return out
}

func TestChartPassesHelmLint(t *testing.T) {
	for name, text := range valuesFiles(t) {
		values, err := chartutil.ReadValues([]byte(text))
		require.NoError(t, err)
		for _, m := range lint.AllWithKubeVersionAndSchemaValidation(chartFolder, values, namespace, nil, false).Messages {
			if !strings.Contains(m.Err.Error(), "icon is recommended") {
				assert.Less(t, m.Severity, support.WarningSev, "%s: %v", name, m)
			}
		}
	}
}

// TestChartRendersObjectsOfTheAPI decodes every object of every values file strictly, and follows
// the references between objects.
func TestChartRendersObjectsOfTheAPI(t *testing.T) {
	for name, text := range valuesFiles(t) {
		t.Run(name, func(t *testing.T) {
			all, notes := render(t, text)
			assert.NotContains(t, notes, "<no value>")
			var templates []core.PodTemplateSpec
			for key, obj := range all {
				switch o := obj.(type) {
				case *apps.DaemonSet:
					assert.Equal(t, o.Spec.Selector.MatchLabels, subset(o.Spec.Selector.MatchLabels, o.Spec.Template.Labels))
					templates = append(templates, o.Spec.Template)
				case *apps.StatefulSet:
					assert.Equal(t, o.Spec.Selector.MatchLabels, subset(o.Spec.Selector.MatchLabels, o.Spec.Template.Labels))
					assert.Contains(t, all, "Service "+o.Spec.ServiceName)
					templates = append(templates, o.Spec.Template)
				case *rbac.ClusterRoleBinding:
					assert.Contains(t, all, "ClusterRole "+o.RoleRef.Name)
					assert.Equal(t, namespace, o.Subjects[0].Namespace, key)
				}
			}
			require.NotEmpty(t, templates)
			for _, pod := range templates {
				checkMounts(t, all, pod.Spec)
			}
			for key, obj := range all {
				switch o := obj.(type) {
				case *core.Service:
					checkSelects(t, key, o.Spec.Selector, templates, servicePorts(o))
				case *policy.PodDisruptionBudget:
					checkSelects(t, key, o.Spec.Selector.MatchLabels, templates, nil)
				case *monitoring.PodMonitor:
					checkSelects(t, key, o.Spec.Selector.MatchLabels, templates, []string{*o.Spec.PodMetricsEndpoints[0].Port})
				case *monitoring.ServiceMonitor:
					checkMonitored(t, o, all)
				}
			}
		})
	}
}

// TestChartAndManifestsUseTheSamePorts covers what Services and annotations add to the pods.
func TestChartAndManifestsUseTheSamePorts(t *testing.T) {
	all, _ := render(t, "monitoring: {serviceMonitor: {enabled: true}}")
	for _, name := range []string{"agent", "gateway"} {
		pod := pods(t)[name]
		numbers := map[string]int32{}
		for _, p := range pod.Spec.Containers[0].Ports {
			numbers[p.Name] = p.ContainerPort
		}
		for _, p := range all["Service otelgpu-"+name].(*core.Service).Spec.Ports {
			assert.Equal(t, numbers[p.Name], p.Port, "%s %s", name, p.Name)
		}
		var annotations map[string]string
		switch o := all[map[string]string{"agent": "DaemonSet", "gateway": "StatefulSet"}[name]+" otelgpu-"+name].(type) {
		case *apps.DaemonSet:
			annotations = o.Spec.Template.Annotations
		case *apps.StatefulSet:
			annotations = o.Spec.Template.Annotations
		}
		assert.Equal(t, pod.Annotations, subset(pod.Annotations, annotations), name)
	}
}

func subset(keys, of map[string]string) map[string]string {
	out := map[string]string{}
	for k := range keys {
		out[k] = of[k]
	}
	return out
}

func servicePorts(s *core.Service) []string {
	var out []string
	for _, p := range s.Spec.Ports {
		out = append(out, p.Name)
	}
	return out
}

// checkSelects checks that a selector selects pods, and that each of these has the named ports.
func checkSelects(t *testing.T, key string, selector map[string]string, pods []core.PodTemplateSpec, ports []string) {
	t.Helper()
	require.NotEmpty(t, selector, key)
	selected := 0
	for _, pod := range pods {
		if !maps.Equal(selector, subset(selector, pod.Labels)) {
			continue
		}
		selected++
		for _, port := range ports {
			assert.True(t, slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p core.ContainerPort) bool {
				return p.Name == port
			}), "%s: %s", key, port)
		}
	}
	assert.Positive(t, selected, key)
}

// checkMonitored checks that a ServiceMonitor selects every Service of the chart, by a port that
// each has.
func checkMonitored(t *testing.T, m *monitoring.ServiceMonitor, all map[string]any) {
	t.Helper()
	selected := 0
	for key, obj := range all {
		if s, ok := obj.(*core.Service); ok {
			assert.Equal(t, m.Spec.Selector.MatchLabels, subset(m.Spec.Selector.MatchLabels, s.Labels), key)
			assert.Contains(t, servicePorts(s), m.Spec.Endpoints[0].Port, key)
			selected++
		}
	}
	assert.Positive(t, selected)
}

// checkMounts checks that mounts have volumes, configuration files are in their ConfigMap, and
// service accounts exist.
func checkMounts(t *testing.T, all map[string]any, spec core.PodSpec) {
	t.Helper()
	volumes := map[string]core.Volume{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = v
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, m := range c.VolumeMounts {
			assert.Contains(t, volumes, m.Name)
		}
	}
	config := all["ConfigMap "+volumes["config"].ConfigMap.Name].(*core.ConfigMap)
	var mounted []string
	for _, arg := range spec.Containers[0].Args {
		mounted = append(mounted, strings.TrimPrefix(arg, "--config=/etc/otelgpu/"))
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(config.Data)), mounted)
	for name, text := range config.Data {
		var tree map[string]any
		assert.NoError(t, yaml.UnmarshalStrict([]byte(text), &tree), name)
	}
}

// TestChartAndKustomizationRunTheSamePods compares the pods of deploy/kubernetes and
// kubernetes-capture with the chart's, apart from names, labels and images.
func TestChartAndKustomizationRunTheSamePods(t *testing.T) {
	plain, _ := render(t, "")
	capturing, _ := render(t, "capture: {enabled: true}")
	manifests := objects(t)
	for _, x := range []struct {
		name        string
		chart, want core.PodSpec
	}{
		{"agent", plain["DaemonSet otelgpu-agent"].(*apps.DaemonSet).Spec.Template.Spec, pods(t)["agent"].Spec},
		{"capture", capturing["DaemonSet otelgpu-agent"].(*apps.DaemonSet).Spec.Template.Spec, captured(t).Spec},
		{"gateway", plain["StatefulSet otelgpu-gateway"].(*apps.StatefulSet).Spec.Template.Spec, pods(t)["gateway"].Spec},
	} {
		// The manifests use the pipelines' default address of the gateways, and mount capture.yaml
		// separately.
		env := &x.chart.Containers[0].Env
		host := slices.IndexFunc(*env, func(e core.EnvVar) bool { return e.Name == "OTELGPU_GATEWAY" })
		require.GreaterOrEqual(t, host, 0, x.name)
		assert.Contains(t, text(t, "agent"), "${env:OTELGPU_GATEWAY:-"+(*env)[host].Value+"}")
		*env = slices.Delete(*env, host, host+1)
		if x.name == "capture" {
			withoutCaptureConfig(t, &x.want)
		}
		for _, spec := range []*core.PodSpec{&x.chart, &x.want} {
			for _, c := range [][]core.Container{spec.InitContainers, spec.Containers} {
				for i := range c {
					c[i].Image, c[i].ImagePullPolicy, c[i].Args = "", "", nil
				}
			}
		}
		assert.Equal(t, asMap(t, x.want), asMap(t, x.chart), x.name)
	}
	for key, obj := range manifests {
		switch o := obj.(type) {
		case *rbac.ClusterRole:
			assert.Equal(t, o.Rules, plain[key].(*rbac.ClusterRole).Rules)
		case *apps.DaemonSet:
			assert.Equal(t, o.Spec.UpdateStrategy, plain[key].(*apps.DaemonSet).Spec.UpdateStrategy)
		case *apps.StatefulSet:
			assert.Equal(t, o.Spec.Replicas, plain[key].(*apps.StatefulSet).Spec.Replicas)
		case *policy.PodDisruptionBudget:
			assert.Equal(t, o.Spec.MinAvailable, plain[key].(*policy.PodDisruptionBudget).Spec.MinAvailable)
		case *core.Service:
			for _, p := range o.Spec.Ports {
				assert.Contains(t, plain[key].(*core.Service).Spec.Ports, p, key)
			}
		case *core.Namespace: // Helm creates namespaces itself
		default:
			assert.Contains(t, plain, key)
		}
	}
}

// withoutCaptureConfig removes the ConfigMap that the patch of deploy/kubernetes-capture adds,
// whose file is in the chart's only ConfigMap.
func withoutCaptureConfig(t *testing.T, spec *core.PodSpec) {
	t.Helper()
	c := &spec.Containers[0]
	before := len(c.VolumeMounts) + len(spec.Volumes)
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == "config-capture" })
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v core.Volume) bool { return v.Name == "config-capture" })
	require.Equal(t, before-2, len(c.VolumeMounts)+len(spec.Volumes))
	sortMounts := func(a, b core.VolumeMount) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(c.VolumeMounts, sortMounts)
	slices.SortFunc(spec.Volumes, func(a, b core.Volume) int { return strings.Compare(a.Name, b.Name) })
}

// asMap returns a pod as its JSON, with mounts and volumes by name.
func asMap(t *testing.T, spec core.PodSpec) map[string]any {
	t.Helper()
	for i := range spec.Containers {
		slices.SortFunc(spec.Containers[i].VolumeMounts, func(a, b core.VolumeMount) int {
			return strings.Compare(a.Name, b.Name)
		})
	}
	slices.SortFunc(spec.Volumes, func(a, b core.Volume) int { return strings.Compare(a.Name, b.Name) })
	b, err := json.Marshal(spec)
	require.NoError(t, err)
	var out map[string]any
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}

// TestPodSecurityOfTheChartIsAsDocumented evaluates each pod with Pod Security's own evaluator.
func TestPodSecurityOfTheChartIsAsDocumented(t *testing.T) {
	agent := func(values string) core.PodTemplateSpec {
		all, _ := render(t, values)
		return all["DaemonSet otelgpu-agent"].(*apps.DaemonSet).Spec.Template
	}
	root := []string{"restricted volume types", "runAsNonRoot != true", "runAsUser=0"}
	for _, x := range []struct {
		values               string
		baseline, restricted []string
	}{
		{"", []string{"hostPath volumes", "hostPort"}, append([]string{"hostPort"}, root...)},
		{"agent: {hostPort: false}", []string{"hostPath volumes"}, root},
		{"agent: {hostPort: false}\ncapture: {enabled: true}", []string{"hostPath volumes"}, root},
		{
			"agent: {hostPort: false, hostPID: true}",
			[]string{"host namespaces", "hostPath volumes"},
			append([]string{"host namespaces"}, root...),
		},
		{"agent: {hostPort: false, dra: true}", []string{"hostPath volumes"}, root},
		{"agent: {hostPort: false, devices: dcgm-exporter}\ngateway: {enabled: false}", nil, nil},
	} {
		pod := agent(x.values)
		assert.Equal(t, x.baseline, reasons(levels(t, api.LevelBaseline, "agent", pod.Labels, pod.Spec)), x.values)
		got := slices.DeleteFunc(reasons(levels(t, api.LevelRestricted, "agent", pod.Labels, pod.Spec)),
			func(s string) bool { return s == "hostPath volumes" })
		assert.Equal(t, x.restricted, got, x.values)
	}
	for name, values := range valuesFiles(t) {
		all, _ := render(t, values)
		if gateway, ok := all["StatefulSet otelgpu-gateway"].(*apps.StatefulSet); ok {
			pod := gateway.Spec.Template
			assert.Empty(t, levels(t, api.LevelRestricted, "gateway", pod.Labels, pod.Spec), name)
		}
	}
}

// TestAgentsThatResolveClaimsListSlicesOnly renders what dynamic resource allocation adds.
func TestAgentsThatResolveClaimsListSlicesOnly(t *testing.T) {
	rules := func(values string) (added []rbac.PolicyRule) {
		all, _ := render(t, values)
		for _, r := range all["ClusterRole otelgpu"].(*rbac.ClusterRole).Rules {
			if r.APIGroups[0] == "resource.k8s.io" {
				added = append(added, r)
			}
		}
		return added
	}
	assert.Empty(t, rules(""))
	assert.Equal(t, []rbac.PolicyRule{{
		APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"list"},
	}}, rules("agent: {dra: true}"))
	all, _ := render(t, "agent: {dra: true}")
	pod := all["DaemonSet otelgpu-agent"].(*apps.DaemonSet).Spec.Template.Spec
	assert.Contains(t, pod.Containers[0].Args, "--config=/etc/otelgpu/dra.yaml")
	assert.Contains(t, pod.Containers[0].VolumeMounts, core.VolumeMount{Name: "cdi", MountPath: "/var/run/cdi", ReadOnly: true})
	assert.Contains(t, all["ConfigMap otelgpu-agent"].(*core.ConfigMap).Data["dra.yaml"], "resource_slices: true")
}

// TestChartScrapesTheExporter renders agents that read dcgm-exporter, which need neither the driver
// nor the kubelet.
func TestChartScrapesTheExporter(t *testing.T) {
	all, _ := render(t, "agent: {devices: dcgm-exporter}\ngateway: {enabled: false}")
	pod := all["DaemonSet otelgpu-agent"].(*apps.DaemonSet).Spec.Template.Spec
	assert.Nil(t, pod.RuntimeClassName)
	for _, v := range pod.Volumes {
		assert.Nil(t, v.HostPath, v.Name)
	}
	assert.Equal(t, []string{"--config=/etc/otelgpu/config.yaml"}, pod.Containers[0].Args)
	want, err := os.ReadFile("../../config/kubernetes/dcgm-exporter.yaml")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSpace(string(want)), strings.TrimSpace(all["ConfigMap otelgpu-agent"].(*core.ConfigMap).Data["config.yaml"]))
	for _, e := range pod.Containers[0].Env {
		assert.NotContains(t, e.Name, "NVIDIA")
	}
	_, err = renderFiles("agent: {devices: dcgm-exporter}")
	require.ErrorContains(t, err, "agent.devices: dcgm-exporter needs gateway.enabled: false and capture.enabled: false")
}

// TestChartHasAllAlertsAndDashboards compares rules and dashboards of rendered objects with their
// origins.
func TestChartHasAllAlertsAndDashboards(t *testing.T) {
	all, _ := render(t, "monitoring: {rules: {enabled: true}, dashboards: {enabled: true}}")
	for _, pattern := range []string{"../../config/alerts/*.yaml", "../../config/grafana/*.json"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		for _, path := range found {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			base := filepath.Base(path)
			name := strings.TrimSuffix(base, filepath.Ext(base))
			if filepath.Ext(base) == ".json" {
				config, ok := all["ConfigMap otelgpu-dashboard-"+name].(*core.ConfigMap)
				require.True(t, ok, name)
				assert.JSONEq(t, string(b), config.Data["otelgpu-"+base])
				assert.Equal(t, "1", config.Labels["grafana_dashboard"])
				continue
			}
			var spec monitoring.PrometheusRuleSpec
			require.NoError(t, yaml.UnmarshalStrict(b, &spec))
			rule, ok := all["PrometheusRule otelgpu-"+name].(*monitoring.PrometheusRule)
			require.True(t, ok, name)
			assert.Equal(t, spec, rule.Spec)
		}
	}
}

// leaves returns the paths of values without deeper values, and the description of each: the
// comment above it.
func leaves(t *testing.T) (paths []string, rows string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(chartFolder, "values.yaml"))
	require.NoError(t, err)
	var doc nodes.Node
	require.NoError(t, nodes.Unmarshal(b, &doc))
	var table strings.Builder
	table.WriteString("| value | default | description |\n|---|---|---|\n")
	var walk func(prefix string, n *nodes.Node)
	walk = func(prefix string, n *nodes.Node) {
		for i := 0; i < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			path := prefix + key.Value
			comment := strings.TrimSpace(key.HeadComment)
			if comment == "" {
				require.Equal(t, nodes.MappingNode, value.Kind, "%s has no comment", path)
				require.NotEmpty(t, value.Content, "%s has no comment", path)
				walk(path+".", value)
				continue
			}
			paths = append(paths, path)
			var v any
			require.NoError(t, value.Decode(&v))
			shown, err := json.Marshal(v)
			require.NoError(t, err)
			text := strings.Join(strings.Fields(strings.ReplaceAll(comment, "#", " ")), " ")
			fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", path, shown, text)
		}
	}
	walk("", doc.Content[0])
	return paths, table.String()
}

// TestChartREADMEHasEveryValue compares the table of values with values.yaml. With -update it
// writes the table.
func TestChartREADMEHasEveryValue(t *testing.T) {
	path := filepath.Join(chartFolder, "README.md")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	_, rows := leaves(t)
	block := regexp.MustCompile(`(?s)<!-- values -->\n.*<!-- /values -->`)
	require.True(t, block.Match(b))
	want := block.ReplaceAllLiteralString(string(b), "<!-- values -->\n"+rows+"<!-- /values -->")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, string(b), "go test -run Chart . -update")
}

// TestChartSchemaRejectsUnknownValues misspells each value, and gives each a value of another type.
func TestChartSchemaRejectsUnknownValues(t *testing.T) {
	paths, _ := leaves(t)
	require.Greater(t, len(paths), 50)
	for _, path := range paths {
		for what, value := range map[string]any{path + "x": "y", path: 1.5} {
			tree := value
			for _, key := range slices.Backward(strings.Split(what, ".")) {
				tree = map[string]any{key: tree}
			}
			b, err := yaml.Marshal(tree)
			require.NoError(t, err)
			_, err = renderFiles(string(b))
			assert.ErrorContains(t, err, "values don't meet the specifications of the schema", "%s", b)
		}
	}
}

func TestChartRejectsTwoMonitorsOfOnePod(t *testing.T) {
	_, err := renderFiles("monitoring: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}")
	assert.ErrorContains(t, err, "exclude each other")
}

func TestChartNamesImagesByDigestFirst(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	image := func(values string) string {
		all, _ := render(t, values)
		return all["DaemonSet otelgpu-agent"].(*apps.DaemonSet).Spec.Template.Spec.Containers[0].Image
	}
	c, err := loader.LoadDir(chartFolder)
	require.NoError(t, err)
	assert.Equal(t, "ghcr.io/otelgpu/otelcol-gpu-full:"+c.Metadata.AppVersion, image(""))
	assert.Equal(t, "r/i:v1", image("image: {repository: r/i, tag: v1}"))
	assert.Equal(t, "r/i@"+digest, image("image: {repository: r/i, tag: v1, digest: '"+digest+"'}"))
}

// TestChartPipelinesAreValid validates the merged configurations of every values file with the full
// build.
func TestChartPipelinesAreValid(t *testing.T) {
	binary := os.Getenv("OTELGPU_FULL_BINARY")
	if binary == "" {
		t.Skip("needs the full Collector (make build-full; OTELGPU_FULL_BINARY)")
	}
	for name, values := range valuesFiles(t) {
		all, _ := render(t, values)
		for key, obj := range all {
			config, ok := obj.(*core.ConfigMap)
			if !ok || strings.Contains(key, "dashboard") {
				continue
			}
			var spec core.PodSpec
			if d, ok := all["DaemonSet "+config.Name].(*apps.DaemonSet); ok {
				spec = d.Spec.Template.Spec
			} else {
				spec = all["StatefulSet "+config.Name].(*apps.StatefulSet).Spec.Template.Spec
			}
			dir := t.TempDir()
			args := []string{"validate"}
			for _, arg := range spec.Containers[0].Args {
				file := filepath.Base(arg)
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(config.Data[file]), 0o600))
				args = append(args, "--config="+filepath.Join(dir, file))
			}
			cmd := exec.CommandContext(t.Context(), binary, args...)
			cmd.Env = append(os.Environ(), "OTELGPU_NODE_NAME=node")
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s: %s: %s", name, key, out)
		}
	}
}
