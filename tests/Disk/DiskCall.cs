namespace KvCluster.Disk;

/// <summary>A call to the <see cref="SimulatedDisk"/>.</summary>
/// <param name="Operation">As errors name it: Read, Map, Write, Write out, Sync, Resize, Create, Rename, Delete, Sync directory and so on.</param>
/// <param name="Path">The file or directory.</param>
/// <param name="Offset">The offset of a read or write, in bytes.</param>
/// <param name="Bytes">The length of a read or write.</param>
internal readonly record struct DiskCall(string Operation, string Path, long Offset = 0, int Bytes = 0)
{
    /// <summary>Whether <see cref="SimulatedDisk.Calls"/> counts it.</summary>
    public bool Changes => Operation is not ("Read" or "Map" or "Write out");
}
