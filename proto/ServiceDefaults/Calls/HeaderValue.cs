using Grpc.Core;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Metadata entries as values of headers that are sent. Bytes are base64 with padding.</summary>
internal static class HeaderValue
{
    public static string Of(Metadata.Entry entry) => entry.IsBinary ? Convert.ToBase64String(entry.ValueBytes) : entry.Value;
}
