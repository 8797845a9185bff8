using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Random conditions and operations of the whole language of requests.</summary>
internal static class ModelRequests
{
    /// <summary>Longer than any test, so that no key expires while the model has it.</summary>
    private const ulong TtlMilliseconds = 30UL * 365 * 24 * 3_600 * 1_000;

    private static readonly RequestOperation[] Codes = Enum.GetValues<RequestOperation>()
        .Where(static code => code is not (RequestOperation.SessionOpen or RequestOperation.SessionEnd or RequestOperation.SessionLeft)).ToArray();

    /// <summary>Fills a request for a store of few keys, with or without results, in one list or two.</summary>
    public static void Fill(ModelRequest request, Random random)
    {
        string Key() => Changes.Key(random.Next(30));
        string Set() => $"s{random.Next(3)}";
        string Member() => $"m{random.Next(150):d4}";
        string Value() => new((char)random.Next('a', 'z'), random.Next(100));
        if (random.Next(3) > 0)
            request.WantResults();
        for (var index = random.Next(3); index > 0; index--)
            request.If(SomeCondition(random, Key, Set, Member));
        for (var index = random.Next(6); index > 0; index--)
            request.Add(SomeOperation(random, Key, Set, Member, Value));
        if (!request.WantsResults || random.Next(2) == 0)
            return;
        request.BeginFailureList();
        for (var index = random.Next(4); index > 0; index--)
            request.Add(SomeOperation(random, Key, Set, Member, Value));
    }

    public static ModelCondition SomeCondition(Random random, Func<string> key, Func<string> set, Func<string> member)
    {
        var kind = (ConditionKind)random.Next(Enum.GetValues<ConditionKind>().Length);
        var isOfSet = kind is ConditionKind.SetHas or ConditionKind.SetLacks;
        var (first, end) = (isOfSet ? set() : key(), key());
        if (kind == ConditionKind.Range && string.CompareOrdinal(first, end) > 0)
            (first, end) = (end, first);
        return new ModelCondition(kind, first, new Etag((ulong)random.Next(3), (ulong)random.Next(1, 40)), isOfSet ? member() : random.Next(2) == 0 ? "m" : "7")
        {
            Relation = (ConditionRelation)random.Next(1, 5),
            End = end,
            Keys = random.Next(2) == 0 ? (ulong)random.Next(4) : null,
            Greatest = random.Next(2) == 0 ? new Etag((ulong)random.Next(3), (ulong)random.Next(3)) : null,
        };
    }

    public static ModelOperation SomeOperation(Random random, Func<string> key, Func<string> set, Func<string> member, Func<string> value)
    {
        var code = Codes[random.Next(Codes.Length)];
        // Ranges and sets are large, so they are mostly left.
        if (code is RequestOperation.DeleteRange or RequestOperation.SetDelete && random.Next(3) > 0)
            code = RequestOperation.Increment;
        var isOfSet = code is RequestOperation.SetAdd or RequestOperation.SetRemove or RequestOperation.SetDelete or RequestOperation.SetGet;
        var (first, end) = (isOfSet ? set() : key(), key());
        if (code is RequestOperation.DeleteRange or RequestOperation.Scan && string.CompareOrdinal(first, end) > 0)
            (first, end) = (end, first);
        var isNumbered = code == RequestOperation.PutOnTerms && random.Next(2) == 0;
        // Few keys have numbers, so that increments meet them, and numbered keys.
        if (isNumbered)
            first = $"k{random.Next(2):d4}/";
        else if (code == RequestOperation.Increment)
            first = random.Next(3) == 0 ? $"k{random.Next(2):d4}/{random.Next(1, 4):d20}" : $"k/n{random.Next(3)}";
        else if (code == RequestOperation.Put && random.Next(4) == 0)
            first = $"k/n{random.Next(3)}";
        var isNumber = code is RequestOperation.Put or RequestOperation.PutOnTerms && random.Next(3) == 0;
        var text = isOfSet ? code == RequestOperation.SetDelete || (code == RequestOperation.SetGet && random.Next(3) == 0) ? "" : member()
            : isNumber ? $"{random.Next(-9, 9)}" : value();
        return new ModelOperation(code, first, text)
        {
            End = end,
            By = random.Next(20) == 0 ? long.MaxValue : random.Next(-5, 6),
            TtlMilliseconds = random.Next(2) == 0 || (code == RequestOperation.PutOnTerms && !isNumbered) ? TtlMilliseconds : 0,
            IsNumbered = isNumbered,
            Limit = random.Next(1, 12),
            KeysOnly = random.Next(2) == 0,
        };
    }
}
