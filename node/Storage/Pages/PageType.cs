namespace KvCluster.Storage.Pages;

/// <summary>Fifth byte of every page (FORMAT.md, "Page header").</summary>
internal enum PageType : byte
{
    /// <summary>Keys with their values.</summary>
    Leaf = 1,

    /// <summary>Separators with references to children.</summary>
    Branch = 2,

    /// <summary>The first page of a run that holds one value.</summary>
    Overflow = 3,

    /// <summary>Sections of the free map.</summary>
    FreeSections = 4,

    /// <summary>References to the pages that hold the sections.</summary>
    FreeDirectory = 5,

    /// <summary>One of the two meta pages.</summary>
    Meta = 6,

    /// <summary>A delta of a leaf (<see cref="DeltaPage"/>). In memory only.</summary>
    Delta = 7,
}
