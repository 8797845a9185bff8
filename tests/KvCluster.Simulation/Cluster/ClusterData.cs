using System.Buffers.Binary;
using System.Text;
using KvCluster.Storage.Encoding;

namespace KvCluster.Simulation.Cluster;

/// <summary>The data that callers of a run write: keys that all of them share, one key of each write's own, and values that reveal their write.</summary>
internal static class ClusterData
{
    public static string NameOf(int key) => $"key{key}";

    public static byte[] Key(int key) => Encoding.UTF8.GetBytes(NameOf(key));

    /// <summary>The key of a set. Sets are before all other keys.</summary>
    public static string SetOf(int set) => $"a set {set}";

    /// <summary>A member with its place among the others, and a number that no other has. Some twenty of them fit into a page.</summary>
    public static string Member(int place, int number) => $"{place:D3} {number:D6} {new string('m', 300)}";

    public static byte[] Marker(long writeId) => Encoding.UTF8.GetBytes($"write{writeId:D8}");

    /// <summary>A value that contains its write's id and reveals if it is incomplete.</summary>
    public static byte[] Value(long writeId, int bytes = sizeof(long))
    {
        var value = new byte[bytes];
        for (var at = sizeof(long); at < bytes; at++)
            value[at] = (byte)((writeId * 31) + at);
        BinaryPrimitives.WriteInt64LittleEndian(value, writeId);
        return value;
    }

    /// <summary>The write that has put a value, or 0 if there is none.</summary>
    public static long WriteOf(ReadOnlySpan<byte> value) => value.IsEmpty ? 0 : BinaryPrimitives.ReadInt64LittleEndian(value);

    /// <summary>The version of a key, from the bytes in a tree.</summary>
    public static CommittedLog.Version Found(ReadOnlySpan<byte> stored)
    {
        var value = KvValue.Read(stored, out var etag).ToArray();
        return new CommittedLog.Version(etag, value);
    }
}
