using FsCheck;
using FsCheck.Fluent;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Random changes of keys and sets, with short names for what they change: k7 is a key and m7 a member, of which some are long.</summary>
internal static class Changes
{
    private const int Keys = 400;
    private const int Members = 150;
    private const int ManyMax = 200;

    /// <summary>Keys, mostly of those that other changes have, too.</summary>
    public static Gen<int> SomeKey { get; } = Gen.Frequency((1, Gen.Choose(0, Keys)), (2, Gen.Choose(0, 30)));

    private static Gen<int> SomeCount { get; } = Gen.Frequency((5, Gen.Constant(1)), (2, Gen.Choose(2, 20)), (1, Gen.Choose(20, ManyMax)));

    private static Gen<int> ShortValue { get; } = Gen.Choose(0, 100);

    /// <summary>Values within a leaf, about as large as one, and over several pages.</summary>
    private static Gen<int> AnyValue { get; } = Gen.Frequency((6, ShortValue), (1, Gen.Choose(100, 2_100)), (1, Gen.Choose(2_100, 20_000)));

    private static Gen<string> SomeSet { get; } = Gen.Elements("s0", "s1", "s2");

    /// <summary>Changes of single keys and members, or of many that follow each other.</summary>
    public static Gen<Command<IChanges>> OfKeys { get; } = Gen.Frequency(
        (8, from key in SomeKey
            from count in SomeCount
            from letter in Gen.Choose('a', 'z')
            from bytes in count > 20 ? ShortValue : AnyValue
            select Put(key, count, (char)letter, bytes)),
        (3, from key in SomeKey from count in SomeCount select Delete(key, count)),
        (3, from set in SomeSet from member in Gen.Choose(0, Members) from count in SomeCount select Add(set, member, count)),
        (2, from set in SomeSet from member in Gen.Choose(0, Members) from count in SomeCount select Remove(set, member, count)));

    /// <summary>Deletes of ranges.</summary>
    public static Gen<Command<IChanges>> OfRanges { get; } =
        from key in SomeKey
        from count in Gen.Frequency((3, Gen.Choose(1, 40)), (1, Gen.Choose(40, Keys)))
        select DeleteRange(key, count);

    /// <summary>The whole name of a key, in the order of the numbers. Few of the long ones fit into a page.</summary>
    public static string Key(int number) => number % 40 == 7 ? $"k{number:d4}{new string('x', 1_200)}" : $"k{number:d4}";

    /// <summary>The numbers below one, from the least: halfway and closer.</summary>
    public static IEnumerable<int> Below(int number, int least)
    {
        if (number > least)
            yield return least;
        for (var gap = (number - least) / 2; gap > 0; gap /= 2)
            yield return number - gap;
    }

    private static Command<IChanges> Put(int key, int count, char letter, int bytes) => new(
        $"put {Names('k', key, count)} = {bytes} x '{letter}'",
        changes => ForEach(key, count, number => changes.Put(Key(number), new string(letter, bytes))),
        () => [.. Below(count, 1).Select(fewer => Put(key, fewer, letter, bytes)), .. Below(bytes, 0).Select(shorter => Put(key, count, letter, shorter))]);

    private static Command<IChanges> Delete(int key, int count) => new(
        $"delete {Names('k', key, count)}",
        changes => ForEach(key, count, number => changes.Delete(Key(number))),
        () => Below(count, 1).Select(fewer => Delete(key, fewer)));

    private static Command<IChanges> DeleteRange(int key, int count) => new(
        $"delete the range from k{key} up to k{key + count}",
        changes => changes.DeleteRange(Key(key), Key(key + count)),
        () => Below(count, 1).Select(fewer => DeleteRange(key, fewer)));

    private static Command<IChanges> Add(string set, int member, int count) => new(
        $"add {Names('m', member, count)} to {set}",
        changes => ForEach(member, count, number => changes.SetAdd(set, Member(number))),
        () => Below(count, 1).Select(fewer => Add(set, member, fewer)));

    private static Command<IChanges> Remove(string set, int member, int count) => new(
        $"remove {Names('m', member, count)} from {set}",
        changes => ForEach(member, count, number => changes.SetRemove(set, Member(number))),
        () => Below(count, 1).Select(fewer => Remove(set, member, fewer)));

    private static string Member(int number) => number % 3 == 0 ? $"m{number:d4}-{new string('m', 150)}" : $"m{number:d4}";

    private static string Names(char kind, int first, int count) => count == 1 ? $"{kind}{first}" : $"{kind}{first} to {kind}{first + count - 1}";

    private static void ForEach(int first, int count, Action<int> change)
    {
        for (var number = first; number < first + count; number++)
            change(number);
    }
}
