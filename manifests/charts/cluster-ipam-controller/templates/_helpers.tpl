{{/* Name of all objects: the release's name and the chart's name, or only the former if it contains the latter. */}}
{{- define "cluster-ipam-controller.fullname" -}}
{{- $name := include "cluster-ipam-controller.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "cluster-ipam-controller.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "cluster-ipam-controller.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "cluster-ipam-controller.fullname" .) -}}
{{- end }}

{{/* A Deployment's selector cannot change. */}}
{{- define "cluster-ipam-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "cluster-ipam-controller.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "cluster-ipam-controller.labels" -}}
{{ include "cluster-ipam-controller.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Whether Pods that run now use no Lease, or another one. Where an upgrade that changed that is not over, its old Pods may still run. */}}
{{- define "cluster-ipam-controller.changesLease" -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace (include "cluster-ipam-controller.fullname" .) }}
{{- $args := (first .spec.template.spec.containers).args | default list }}
{{- $status := .status | default dict }}
{{- $over := and (ge (int64 $status.observedGeneration) (int64 .metadata.generation)) (eq (int64 $status.updatedReplicas) (int64 $status.replicas)) }}
{{- if not (has (printf "--leader-elect-resource-name=%s" $.Values.leaderElection.resourceName) $args) }}true{{ end }}
{{- if and (eq (dig "strategy" "type" "" .spec) "Recreate") (not $over) }}true{{ end }}
{{- end }}
{{- end }}

{{/* Checks that values.schema.json cannot make, or not with a helpful message. */}}
{{- define "cluster-ipam-controller.validate" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: make the image (make image REGISTRY=registry.example.com), push it to that registry, and set image.repository=registry.example.com/cluster-ipam-controller" }}
{{- end }}
{{- if and (not .Values.leaderElection.enabled) (gt (int .Values.replicaCount) 1) }}
{{- fail "replicaCount is more than 1 and leaderElection.enabled is false: all replicas would allocate addresses. Set leaderElection.enabled=true or replicaCount=1" }}
{{- end }}
{{- if eq (int .Values.service.port) (int .Values.service.securePort) }}
{{- fail "service.port and service.securePort are equal: one is for HTTP, the other for HTTPS. Set them to different ports" }}
{{- end }}
{{- range .Values.extraArgs }}
{{- /* The program reads _ in the name of a flag as -. */ -}}
{{- $name := regexFind "^[^=]*" . | replace "_" "-" }}
{{- if regexMatch "^--(controllers|enable-leader-election|health-probe-address|leader-elect-[a-z-]+|secure-port|webserver-bind-address|cluster-ipam-infoblox-[a-z]+|cluster-ipam-k0rdent-namespace|cluster-ipam-force-allocation)$" $name }}
{{- fail (printf "extraArgs: %s is not allowed here, because permissions and probes would not know of it. Use controllers, leaderElection, service, infoblox, k0rdentNamespace or forceAllocation instead. The Lease is always in the release's namespace" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Namespace of the Secrets with the credentials of InfobloxInstances. */}}
{{- define "cluster-ipam-controller.secretNamespace" -}}
{{- .Values.infoblox.secretNamespace | default .Release.Namespace -}}
{{- end }}
