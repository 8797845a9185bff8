namespace KvCluster.Disk;

/// <summary>A directory of the <see cref="SimulatedDisk"/>: its names as the machine sees them, and the changes not yet synced.</summary>
internal sealed class SimulatedDirectory
{
    private readonly List<Action<SimulatedDirectory>> _unsynced = [];
    private Dictionary<string, SimulatedNode> _durableFiles = [];
    private Dictionary<string, SimulatedDirectory> _durableDirectories = [];

    public Dictionary<string, SimulatedNode> Files { get; private set; } = [];

    public Dictionary<string, SimulatedDirectory> Directories { get; private set; } = [];

    public void Set(string name, SimulatedNode node) => Change(directory => directory.Files[name] = node);

    public void Set(string name, SimulatedDirectory node) => Change(directory => directory.Directories[name] = node);

    public void Remove(string name) => Change(directory =>
    {
        directory.Files.Remove(name);
        directory.Directories.Remove(name);
    });

    /// <summary>The new name refers to the file of the old one, even if the change that gave it the old name is lost.</summary>
    public void Rename(string name, string newName)
    {
        var (file, child) = (Files.GetValueOrDefault(name), Directories.GetValueOrDefault(name));
        Change(directory =>
        {
            directory.Files.Remove(name);
            directory.Directories.Remove(name);
            if (file is not null)
                directory.Files[newName] = file;
            if (child is not null)
                directory.Directories[newName] = child;
        });
    }

    public void Sync()
    {
        _durableFiles = new(Files);
        _durableDirectories = new(Directories);
        _unsynced.Clear();
    }

    /// <summary>Applies the effect of a power loss, here and below.</summary>
    public void Settle(UnsyncedWrites unsynced, Random random)
    {
        Files = new(_durableFiles);
        Directories = new(_durableDirectories);
        foreach (var change in _unsynced)
        {
            if (unsynced == UnsyncedWrites.Kept || (unsynced != UnsyncedWrites.Dropped && random.Next(2) == 0))
                change(this);
        }
        Sync();
        foreach (var (_, file) in Files.OrderBy(pair => pair.Key, StringComparer.Ordinal))
            file.Settle(unsynced, random);
        foreach (var (_, directory) in Directories.OrderBy(pair => pair.Key, StringComparer.Ordinal))
            directory.Settle(unsynced, random);
    }

    /// <summary>Copies all that is here and below to an empty directory, durably.</summary>
    public void CopyTo(SimulatedDirectory empty)
    {
        foreach (var (name, file) in Files)
        {
            var copy = new SimulatedNode();
            copy.Write(file.Content, 0, durable: true);
            empty.Set(name, copy);
        }

        foreach (var (name, directory) in Directories)
        {
            var copy = new SimulatedDirectory();
            directory.CopyTo(copy);
            empty.Set(name, copy);
        }

        empty.Sync();
    }

    public long Bytes() => Files.Values.Sum(file => file.AllocatedBytes) + Directories.Values.Sum(directory => directory.Bytes());

    private void Change(Action<SimulatedDirectory> change)
    {
        change(this);
        _unsynced.Add(change);
    }
}
