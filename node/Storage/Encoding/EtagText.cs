using System.Globalization;

namespace KvCluster.Storage.Encoding;

/// <summary>Etags as people read them.</summary>
internal static class EtagText
{
    /// <summary>Epoch and change.</summary>
    public static string Of(Etag etag) => string.Create(CultureInfo.InvariantCulture, $"(epoch {etag.Epoch}, change {etag.Change})");
}
