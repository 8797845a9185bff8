namespace KvCluster.Disk;

/// <summary>A directory of the <see cref="SimulatedDisk"/>: its names as the machine sees them, and the changes not yet synced.</summary>
internal sealed class SimulatedDirectory
{
    private readonly List<Unsynced> _unsynced = [];
    private Dictionary<string, SimulatedNode> _durableFiles = [];
    private Dictionary<string, SimulatedDirectory> _durableDirectories = [];

    public Dictionary<string, SimulatedNode> Files { get; private set; } = [];

    public Dictionary<string, SimulatedDirectory> Directories { get; private set; } = [];

    public void Set(string name, SimulatedNode node) => Change(directory => directory.Files[name] = node);

    public void Set(string name, SimulatedDirectory node) => Change(directory => directory.Directories[name] = node);

    public void Remove(string name) => Change(directory => directory.Erase(name));

    /// <summary>The new name refers to the file of the old one, even if the change that gave it the old name is lost.</summary>
    public void Rename(string name, string newName)
    {
        var (file, child) = (Files.GetValueOrDefault(name), Directories.GetValueOrDefault(name));
        Change(directory =>
        {
            directory.Erase(name);
            directory.Name(newName, file, child);
        });
    }

    /// <summary>
    /// Renames what has a name here to a name in another directory. A power loss never leaves it without a name; until both directories are synced it may leave
    /// it with both.
    /// </summary>
    public void Move(string name, SimulatedDirectory target, string newName)
    {
        var (file, child) = (Files.GetValueOrDefault(name), Directories.GetValueOrDefault(name));
        var arrival = new Arrival();
        target.Change(directory => directory.Name(newName, file, child), arrival);
        Change(directory => directory.Erase(name), arrival, isDeparture: true);
    }

    public void Sync()
    {
        _durableFiles = new(Files);
        _durableDirectories = new(Directories);
        foreach (var change in _unsynced)
            change.Arrival?.Happens(static () => true);
        _unsynced.Clear();
    }

    /// <summary>Applies the effect of a power loss, here and below.</summary>
    public void Settle(UnsyncedWrites unsynced, Random random)
    {
        Files = new(_durableFiles);
        Directories = new(_durableDirectories);
        foreach (var (change, arrival, isDeparture) in _unsynced)
        {
            if (arrival is null ? Stays() : arrival.Happens(Stays) && (!isDeparture || Stays()))
                change(this);
        }
        Sync();
        foreach (var (_, file) in Files.OrderBy(pair => pair.Key, StringComparer.Ordinal))
            file.Settle(unsynced, random);
        foreach (var (_, directory) in Directories.OrderBy(pair => pair.Key, StringComparer.Ordinal))
            directory.Settle(unsynced, random);

        bool Stays() => unsynced == UnsyncedWrites.Kept || (unsynced != UnsyncedWrites.Dropped && random.Next(2) == 0);
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

    private void Change(Action<SimulatedDirectory> change, Arrival? arrival = null, bool isDeparture = false)
    {
        change(this);
        _unsynced.Add(new Unsynced(change, arrival, isDeparture));
    }

    private void Erase(string name)
    {
        Files.Remove(name);
        Directories.Remove(name);
    }

    private void Name(string name, SimulatedNode? file, SimulatedDirectory? child)
    {
        if (file is not null)
            Files[name] = file;
        if (child is not null)
            Directories[name] = child;
    }

    /// <param name="Apply">Makes the change.</param>
    /// <param name="Arrival">Of a move: whether its new name survives a power loss.</param>
    /// <param name="IsDeparture">Whether it is the other half of the move, which is lost with the arrival.</param>
    private sealed record Unsynced(Action<SimulatedDirectory> Apply, Arrival? Arrival, bool IsDeparture);

    /// <summary>Whether the new name of something that was moved survives. Two directories ask, and the first one decides.</summary>
    private sealed class Arrival
    {
        private bool? _happens;

        public bool Happens(Func<bool> decide) => _happens ??= decide();
    }
}
