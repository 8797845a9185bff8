using KvCluster.V1;
using Tag = System.Collections.Generic.KeyValuePair<string, object?>;

namespace KvCluster.Telemetry;

/// <summary>The methods of the key-value service as attributes of measurements and names of spans, made once.</summary>
internal static class MethodTags
{
    /// <summary>Of a scan, which is no <see cref="Method"/>.</summary>
    public static readonly Tag Scan = new(RpcTags.Method, "kvcluster.v1.Kv/Scan");

    private static readonly Tag[] All = [.. Enum.GetValues<Method>().Order().Select(static method => new Tag(RpcTags.Method, NameOf(method)))];

    /// <summary>A method's name by OpenTelemetry's conventions: "kvcluster.v1.Kv/Put".</summary>
    public static string NameOf(Method method) => $"kvcluster.v1.Kv/{method}";

    /// <summary>A method's attribute; the unspecified one's where a caller sent a number that is none.</summary>
    public static Tag Of(Method method) => All[(uint)method < (uint)All.Length ? (int)method : 0];
}
