using System.Diagnostics.CodeAnalysis;
using Tag = System.Collections.Generic.KeyValuePair<string, object?>;

namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>Compares the attributes of measurements, in the order given. The attributes of a measurement are looked up without copying them.</summary>
internal sealed class TagComparer : IEqualityComparer<Tag[]>, IAlternateEqualityComparer<ReadOnlySpan<Tag>, Tag[]>
{
    public static readonly TagComparer Instance = new();

    public Tag[] Create(ReadOnlySpan<Tag> alternate) => alternate.ToArray();

    public bool Equals(Tag[]? x, Tag[]? y) => Equals(x.AsSpan(), y ?? []);

    public bool Equals(ReadOnlySpan<Tag> alternate, Tag[] other)
    {
        if (alternate.Length != other.Length)
            return false;
        for (var index = 0; index < alternate.Length; index++)
        {
            if (alternate[index].Key != other[index].Key || !Equals(alternate[index].Value, other[index].Value))
                return false;
        }
        return true;
    }

    public int GetHashCode([DisallowNull] Tag[] obj) => GetHashCode(obj.AsSpan());

    // An instrument uses the same keys in all its measurements, so the values distinguish them.
    public int GetHashCode(ReadOnlySpan<Tag> alternate)
    {
        var hash = alternate.Length;
        foreach (var (_, value) in alternate)
            hash = (hash * 31) + (value?.GetHashCode() ?? 0);
        return hash;
    }
}
