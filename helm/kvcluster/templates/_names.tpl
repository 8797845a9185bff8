{{- define "kv.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kv.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kv.labels" -}}
{{ include "kv.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* Image: (list root part), where part is a key under .Values.image */ -}}
{{- define "kv.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.image (index . 1) -}}
{{- with $root.Values.image.registry }}{{ . | trimSuffix "/" }}/{{ end }}{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}

{{- define "kv.cluster" -}}
{{- .Values.cluster.name | default .Release.Name -}}
{{- end -}}

{{- define "kv.scheme" -}}
{{- ternary "https" "http" (eq "true" (include "kv.tls" .)) -}}
{{- end -}}

{{- /* Host name of a Service: (list root name) */ -}}
{{- define "kv.host" -}}
{{- $root := index . 0 -}}
{{- index . 1 }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}
{{- end -}}

{{- /* Address of any node that is ready. */ -}}
{{- define "kv.nodesAddress" -}}
{{ include "kv.scheme" . }}://{{ include "kv.host" (list . (printf "%s-nodes" (include "kv.fullname" .))) }}:7401
{{- end -}}

{{- define "kv.coordinator" -}}
{{- $root := . -}}
etcd=
{{- if .Values.etcd.enabled -}}
{{- $service := printf "%s-etcd" (include "kv.fullname" .) -}}
{{- range $index := until (int .Values.etcd.count) }}{{ if $index }},{{ end }}{{ include "kv.etcdScheme" $root }}://{{ $service }}-{{ $index }}.{{ include "kv.host" (list $root $service) }}:2379{{ end -}}
{{- else -}}
{{- join "," .Values.externalEtcd.endpoints -}}
{{- end -}}
{{- end -}}

{{- define "kv.etcdScheme" -}}
{{- ternary "https" "http" (eq "true" (include "kv.etcdTls" .)) -}}
{{- end -}}
